import { useEffect, useRef, useState, type KeyboardEvent } from "react";
import { attached } from "../state/attachment";
import type { Chat } from "../state/chat";
import { draftOf, keepDraft } from "../state/drafts";
import { isSend } from "../state/keys";
import { preferences } from "../state/preferences";
import { useStore } from "../state/store";
import { ContextMeter } from "./ContextMeter";
import { IconButton } from "./IconButton";
import { Readiness } from "./Readiness";
import styles from "./Composer.module.css";

/** So long after the last key a draft is read by the server, and kept by the browser. */
const PAUSE_MS = 200;
/** The draft of a conversation that has not begun: its id is another after a reload. */
const UNBEGUN = "new";

interface Props {
  chat: Chat;
  /** A text to begin with, and a number that is new with each. */
  example: { text: string; number: number } | null;
}

/** Where a message is written. Its text is its own, so that a key redraws nothing else. */
export function Composer({ chat, example }: Props) {
  const id = useStore(chat, (state) => (state.isKept ? state.open.id : UNBEGUN));
  const isWriting = useStore(chat, (state) => state.replies.has(state.open.id));
  const enterSends = useStore(preferences, (state) => state.enterSends);
  const readsAhead = useStore(preferences, (state) => state.readsAhead);
  const [text, setText] = useState(() => draftOf(id));
  const [isDropping, setIsDropping] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const file = useRef<HTMLInputElement>(null);

  // The draft of another conversation, or an example, takes the place of what is here.
  const [shown, setShown] = useState({ id, example });
  if (shown.id !== id || shown.example !== example) {
    setShown({ id, example });
    setText(shown.example !== example && example ? example.text : draftOf(id));
  }
  useEffect(() => {
    // On a phone the keyboard would take half of the screen from who came to read.
    if (example || !window.matchMedia("(pointer: coarse)").matches) field.current?.focus();
  }, [id, example]);

  useEffect(() => {
    const timer = window.setTimeout(() => {
      keepDraft(id, text);
      // What is written while a reply comes can be read only after it.
      if (!isWriting) void chat.compose(text);
    }, PAUSE_MS);
    return () => window.clearTimeout(timer);
  }, [chat, id, text, isWriting, readsAhead]);

  const latest = useRef(text);
  useEffect(() => {
    // A tab may be closed, or another conversation opened, before the pause is over.
    const keep = () => keepDraft(id, latest.current);
    window.addEventListener("pagehide", keep);
    return () => {
      window.removeEventListener("pagehide", keep);
      keep();
    };
  }, [id]);
  useEffect(() => {
    latest.current = text;
  }, [text]);

  const send = () => {
    if (!text.trim() || isWriting || !chat.send(text.trim())) return;
    setText("");
    latest.current = "";
    keepDraft(id, "");
  };

  const attach = async (files: FileList | null) => {
    for (const chosen of files ?? []) {
      try {
        const content = await attached(chosen);
        setText((before) => (before.trim() ? `${before.trimEnd()}\n\n${content}` : content));
      } catch (error) {
        chat.fail(error);
      }
    }
    field.current?.focus();
  };

  const onKeyDown = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    if (isSend(event, enterSends)) {
      event.preventDefault();
      send();
    } else if (event.key === "ArrowUp" && !text && !event.nativeEvent.isComposing) {
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
      <div
        className={styles.box}
        data-dropping={isDropping}
        onDragOver={(event) => {
          if (!event.dataTransfer.types.includes("Files")) return;
          event.preventDefault();
          setIsDropping(true);
        }}
        onDragLeave={() => setIsDropping(false)}
        onDrop={(event) => {
          setIsDropping(false);
          if (!event.dataTransfer.files.length) return;
          event.preventDefault();
          void attach(event.dataTransfer.files);
        }}
      >
        <IconButton
          icon="attach"
          label="Add a file of text"
          onClick={() => file.current?.click()}
        />
        <input
          ref={file}
          type="file"
          multiple
          hidden
          aria-label="Files of text"
          onChange={(event) => {
            void attach(event.target.files).finally(() => (event.target.value = ""));
          }}
        />
        <textarea
          ref={field}
          aria-label="Message"
          dir="auto"
          placeholder="Write a message"
          rows={1}
          value={text}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={onKeyDown}
        />
        {isWriting ? (
          <IconButton
            icon="stop"
            label="Stop"
            className={`outlined ${styles.send}`}
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
