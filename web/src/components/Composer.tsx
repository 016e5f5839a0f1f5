import { useEffect, useRef, useState, type KeyboardEvent } from "react";
import type { Chat } from "../state/chat";
import { draftOf, keepDraft } from "../state/drafts";
import { preferences } from "../state/preferences";
import { useStore } from "../state/store";
import { ContextMeter } from "./ContextMeter";
import { IconButton } from "./IconButton";
import { Readiness } from "./Readiness";
import styles from "./Composer.module.css";

/** So long after the last key a draft is read by the server, and kept by the browser. */
const PAUSE_MS = 200;

interface Props {
  chat: Chat;
  /** A text to begin with, and a number that is new with each. */
  example: { text: string; number: number } | null;
}

/** Where a message is written. Its text is its own, so that a key redraws nothing else. */
export function Composer({ chat, example }: Props) {
  const id = useStore(chat, (state) => state.open.id);
  const isWriting = useStore(chat, (state) => state.replies.has(state.open.id));
  const enterSends = useStore(preferences, (state) => state.enterSends);
  const [text, setText] = useState(() => draftOf(id));
  const field = useRef<HTMLTextAreaElement>(null);

  // The draft of another conversation, or an example, takes the place of what is here.
  const [shown, setShown] = useState({ id, example });
  if (shown.id !== id || shown.example !== example) {
    setShown({ id, example });
    setText(shown.example !== example && example ? example.text : draftOf(id));
  }
  useEffect(() => field.current?.focus(), [id, example]);

  useEffect(() => {
    const timer = window.setTimeout(() => {
      keepDraft(id, text);
      void chat.compose(text);
    }, PAUSE_MS);
    return () => window.clearTimeout(timer);
  }, [chat, id, text]);

  useEffect(() => {
    // A tab may be closed before the pause is over.
    const keep = () => keepDraft(id, field.current?.value ?? "");
    window.addEventListener("pagehide", keep);
    return () => window.removeEventListener("pagehide", keep);
  }, [id]);

  const send = () => {
    if (!text.trim() || isWriting) return;
    setText("");
    keepDraft(id, "");
    chat.send(text.trim());
  };

  const onKeyDown = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    // Enter that ends a composition of characters belongs to the input method. Safari says so only
    // by the key code of keys that are being processed.
    if (event.nativeEvent.isComposing || event.keyCode === 229) return;
    if (event.key === "Enter") {
      const isPlain = !event.shiftKey && !event.ctrlKey && !event.metaKey && !event.altKey;
      if (enterSends ? isPlain : event.shiftKey || event.ctrlKey || event.metaKey) {
        event.preventDefault();
        send();
      }
    } else if (event.key === "ArrowUp" && !text) {
      const edit = document.querySelectorAll<HTMLButtonElement>('[aria-label="Edit message"]');
      edit.item(edit.length - 1)?.click();
      event.preventDefault();
    }
  };

  return (
    <form
      className={styles.composer}
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <div className={styles.box}>
        <textarea
          ref={field}
          aria-label="Message"
          placeholder="Say something"
          rows={1}
          value={text}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={onKeyDown}
        />
        {isWriting ? (
          <IconButton
            icon="stop"
            label="Stop"
            className={styles.send}
            onClick={() => chat.stop()}
          />
        ) : (
          <IconButton
            icon="send"
            label="Send"
            type="submit"
            className={`primary ${styles.send}`}
            disabled={!text.trim()}
          />
        )}
      </div>
      <div className={styles.below}>
        <Readiness chat={chat} isEmpty={!text.trim()} />
        <ContextMeter chat={chat} />
      </div>
    </form>
  );
}
