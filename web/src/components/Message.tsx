import { memo, useState } from "react";
import type { Message as MessageState } from "../api/conversations";
import type { Reply } from "../state/reply";
import { useStore } from "../state/store";
import { CopyButton } from "./CopyButton";
import { IconButton } from "./IconButton";
import { Markdown } from "./Markdown";
import { MessageEditor } from "./MessageEditor";
import { MessageFigures } from "./MessageFigures";
import styles from "./Message.module.css";

export interface Actions {
  edit(message: MessageState, text: string): void;
  regenerate(message: MessageState): void;
  continue(message: MessageState): void;
  show(id: string): void;
}

interface Props {
  message: MessageState;
  siblings: readonly MessageState[];
  isLast: boolean;
  /** Nothing can be changed while a reply is being written. */
  isBusy: boolean;
  actions: Actions;
}

export const Message = memo(function Message({
  message,
  siblings,
  isLast,
  isBusy,
  actions,
}: Props) {
  const [isEditing, setIsEditing] = useState(false);
  if (message.role === "user" && isEditing) {
    return (
      <MessageEditor
        text={message.content}
        onCancel={() => setIsEditing(false)}
        onSave={(text) => {
          setIsEditing(false);
          actions.edit(message, text);
        }}
      />
    );
  }
  const isCutOff = message.role === "assistant" && message.status !== "complete";
  const canGoOn = isLast && (isCutOff || message.finishReason === "length");
  return (
    <article className={styles.message} data-role={message.role} data-message={message.id}>
      <h2 className="visually-hidden">{message.role === "user" ? "You" : "Model"}</h2>
      {message.role === "user" ? (
        <div className={styles.said}>{message.content}</div>
      ) : (
        <Markdown text={message.content} />
      )}
      {isCutOff && (
        <p className={styles.note}>
          {message.finishReason === "cancelled" ? "Stopped." : "This reply was cut off."}
        </p>
      )}
      <footer className={styles.footer}>
        <Branches message={message} siblings={siblings} isBusy={isBusy} actions={actions} />
        <CopyButton text={message.content} label="Copy message" />
        {message.role === "user" ? (
          <IconButton
            icon="edit"
            label="Edit message"
            disabled={isBusy}
            onClick={() => setIsEditing(true)}
          />
        ) : (
          <IconButton
            icon="again"
            label="Regenerate"
            disabled={isBusy}
            onClick={() => actions.regenerate(message)}
          />
        )}
        {canGoOn && (
          <IconButton
            icon="forward"
            label="Continue"
            disabled={isBusy || !message.content}
            onClick={() => actions.continue(message)}
          />
        )}
        {message.figures && <MessageFigures figures={message.figures} />}
      </footer>
    </article>
  );
});

function Branches({ message, siblings, isBusy, actions }: Omit<Props, "isLast">) {
  if (siblings.length < 2) return null;
  const index = siblings.findIndex((sibling) => sibling.id === message.id);
  const go = (step: number) => {
    const sibling = siblings[index + step];
    if (sibling) actions.show(sibling.id);
  };
  return (
    <span className={styles.branches} role="group" aria-label="Branches">
      <IconButton
        icon="left"
        label="Previous branch"
        disabled={isBusy || index === 0}
        onClick={() => go(-1)}
      />
      <span>
        {index + 1}/{siblings.length}
      </span>
      <IconButton
        icon="right"
        label="Next branch"
        disabled={isBusy || index === siblings.length - 1}
        onClick={() => go(1)}
      />
    </span>
  );
}

/** A reply that is being written. */
export function LiveMessage({ reply }: { reply: Reply }) {
  const text = useStore(reply, (state) => state.text);
  const progress = useStore(reply, (state) => state.progress);
  return (
    <article className={styles.message} data-role="assistant" aria-busy="true">
      <h2 className="visually-hidden">Model</h2>
      <Markdown text={text} />
      {!text && (
        <div className={styles.waiting}>
          {progress === null ? (
            <span className={styles.pulse} role="status" aria-label="Waiting for the first word" />
          ) : (
            <label>
              Reading <progress value={progress} max={1} />
            </label>
          )}
        </div>
      )}
    </article>
  );
}
