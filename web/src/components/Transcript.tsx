import { useEffect, useMemo } from "react";
import { useEarlier } from "../hooks/useEarlier";
import { useStickToBottom } from "../hooks/useStickToBottom";
import type { Chat } from "../state/chat";
import { useStore } from "../state/store";
import { childrenOf, threadTo } from "../state/tree";
import { Announcer } from "./Announcer";
import { IconButton } from "./IconButton";
import { LiveMessage, Message, type Actions } from "./Message";
import { Welcome } from "./Welcome";
import styles from "./Transcript.module.css";

interface Props {
  chat: Chat;
  onExample(text: string): void;
  onSettings(): void;
}

export function Transcript({ chat, onExample, onSettings }: Props) {
  const id = useStore(chat, (state) => state.open.id);
  const messages = useStore(chat, (state) => state.open.messages);
  const leaf = useStore(chat, (state) => state.open.leaf);
  const system = useStore(chat, (state) => state.open.system);
  const reply = useStore(chat, (state) => state.replies.get(state.open.id));
  const children = useMemo(() => childrenOf(messages), [messages]);
  const thread = useMemo(() => threadTo(messages, leaf), [messages, leaf]);
  const actions = useMemo<Actions>(
    () => ({
      edit: (message, text) => chat.edit(message, text),
      regenerate: (message) => chat.regenerate(message),
      continue: (message) => chat.continue(message),
      show: (sibling) => chat.show(sibling),
    }),
    [chat],
  );
  const { scroller, content, isAtEnd, toEnd } = useStickToBottom(thread.length > 0);
  const { start, sentinel } = useEarlier(id, thread.length);
  // Another conversation, or something new that was said, is shown from its end.
  useEffect(toEnd, [toEnd, id, reply]);

  return (
    <div
      className={styles.scroller}
      ref={scroller}
      tabIndex={0}
      role="region"
      aria-label="Conversation"
    >
      <div className={styles.content} ref={content}>
        {thread.length === 0 && <Welcome chat={chat} onExample={onExample} />}
        {system && (
          <button type="button" className={styles.system} dir="auto" onClick={onSettings}>
            <b>System prompt:</b> {system}
          </button>
        )}
        {start > 0 && (
          // Its key is new with each batch, so that one still in sight is noticed again.
          <p key={start} ref={sentinel} className={styles.earlier}>
            {start} earlier messages
          </p>
        )}
        {thread
          .slice(start)
          .map((message, index) =>
            reply?.message === message.id ? (
              <LiveMessage key={message.id} reply={reply} />
            ) : (
              <Message
                key={message.id}
                message={message}
                siblings={children.get(message.parent) ?? []}
                isLast={start + index === thread.length - 1}
                isBusy={reply !== undefined}
                actions={actions}
              />
            ),
          )}
        <Announcer reply={reply} />
      </div>
      {!isAtEnd && (
        <IconButton icon="down" label="To the end" className={styles.end} onClick={toEnd} />
      )}
    </div>
  );
}
