import { memo, useState } from "react";
import type { Message as MessageState } from "../api/conversations";
import type { Reply } from "../state/reply";
import { useStore } from "../state/store";
import { saidIn } from "../state/thought";
import { CodeBlock } from "./CodeBlock";
import { CopyButton } from "./CopyButton";
import { IconButton } from "./IconButton";
import { Markdown } from "./Markdown";
import { MessageEditor } from "./MessageEditor";
import { LiveFigures, MessageFigures } from "./MessageFigures";
import { Question } from "./Question";
import { Thought } from "./Thought";
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
        isBusy={isBusy}
        onCancel={() => setIsEditing(false)}
        onSave={(text) => {
          setIsEditing(false);
          actions.edit(message, text);
        }}
      />
    );
  }
  const isCutOff = message.status === "interrupted";
  const canGoOn = isLast && (isCutOff || message.finishReason === "length");
  return (
    <article className={styles.message} data-role={message.role} data-message={message.id}>
      <h2 className="visually-hidden">{message.role === "user" ? "You" : "Model"}</h2>
      {message.role === "user" ? (
        <Question text={message.content} />
      ) : (
        <Said content={message.content} />
      )}
      {message.status === "writing" && (
        <p className={styles.note}>It is being written, by another tab.</p>
      )}
      {isCutOff && (
        <p className={styles.note}>
          {message.finishReason === "cancelled"
            ? "Stopped."
            : message.content
              ? "This reply was cut off."
              : "No reply came."}
        </p>
      )}
      {message.figures?.warnings.map((warning) => (
        <p key={warning} className={styles.note}>
          {warning}
        </p>
      ))}
      <footer className={styles.footer}>
        <Branches message={message} siblings={siblings} isBusy={isBusy} actions={actions} />
        <CopyButton text={saidIn(message.content).reply} label="Copy message" />
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
        {canGoOn && message.content && (
          <IconButton
            icon="forward"
            label="Continue"
            disabled={isBusy}
            onClick={() => actions.continue(message)}
          />
        )}
        {message.figures && <MessageFigures figures={message.figures} />}
      </footer>
    </article>
  );
});

function Said({ content, isLive = false }: { content: string; isLive?: boolean }) {
  const { thought, isThinking, reply } = saidIn(content);
  const json = jsonIn(reply);
  return (
    <>
      {thought !== null && <Thought text={thought} isThinking={isThinking && isLive} />}
      {json === null ? <Markdown text={reply} /> : <CodeBlock language="json" code={json} />}
    </>
  );
}

/** The lines of a reply that is one JSON object or array, as one that follows a schema is. */
function jsonIn(reply: string): string | null {
  if (!/^\s*[{[]/.test(reply)) return null;
  try {
    return JSON.stringify(JSON.parse(reply), null, 2);
  } catch {
    return null;
  }
}

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
  const figures = useStore(reply, (state) => state.figures);
  return (
    <article className={styles.message} data-role="assistant" aria-busy="true">
      <h2 className="visually-hidden">Model</h2>
      <Said content={text} isLive />
      {!text && (
        <div className={styles.waiting}>
          {progress === null ? (
            <span className={styles.pulse} role="status" aria-label="Waiting for the first word" />
          ) : (
            <label>
              Reading the conversation <progress value={progress} max={1} />
            </label>
          )}
        </div>
      )}
      {figures && (
        <footer>
          <LiveFigures figures={figures} />
        </footer>
      )}
    </article>
  );
}
