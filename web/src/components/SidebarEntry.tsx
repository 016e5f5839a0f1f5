import { useEffect, useRef, useState } from "react";
import type { Summary } from "../api/conversations";
import type { Chat } from "../state/chat";
import { saveAsJson, saveAsMarkdown } from "../state/export";
import { useStore } from "../state/store";
import { IconButton } from "./IconButton";
import { Menu } from "./Menu";
import styles from "./SidebarEntry.module.css";

interface Props {
  chat: Chat;
  summary: Summary;
  isOpen: boolean;
  onOpen(id: string | null): void;
}

/** A conversation in the list, and what can be done with it. */
export function SidebarEntry({ chat, summary, isOpen, onOpen }: Props) {
  const [isRenaming, setIsRenaming] = useState(false);
  const [isRemoving, setIsRemoving] = useState(false);
  const isWriting = useStore(chat, (state) => state.replies.has(summary.id));
  const entry = useRef<HTMLLIElement>(null);
  const { id } = summary;
  const title = summary.title || "Untitled";

  useEffect(() => {
    if (isOpen) entry.current?.scrollIntoView({ block: "nearest" });
  }, [isOpen]);

  if (isRenaming) {
    const rename = (text: string) => {
      setIsRenaming(false);
      if (text.trim() && text !== summary.title) chat.change(id, { title: text.trim() });
    };
    return (
      <li>
        <input
          aria-label="Title"
          dir="auto"
          autoFocus
          defaultValue={summary.title}
          onFocus={(event) => event.target.select()}
          onBlur={(event) => rename(event.target.value)}
          onKeyDown={(event) => {
            if (event.nativeEvent.isComposing) return;
            if (event.key === "Enter") rename(event.currentTarget.value);
            if (event.key === "Escape") {
              event.stopPropagation();
              setIsRenaming(false);
            }
          }}
        />
      </li>
    );
  }
  return (
    <li ref={entry} className={styles.entry} data-open={isOpen}>
      <button
        type="button"
        className={styles.title}
        dir="auto"
        title={title}
        aria-current={isOpen ? "page" : undefined}
        onClick={() => onOpen(id)}
        onDoubleClick={() => setIsRenaming(true)}
      >
        {title}
      </button>
      {isWriting && <span className={styles.writing} role="img" aria-label="A reply is coming" />}
      {isRemoving ? (
        <span className={styles.confirm}>
          <button
            type="button"
            className="danger"
            autoFocus
            onClick={() => {
              chat.remove(id);
              if (isOpen) onOpen(null);
            }}
          >
            Delete
          </button>
          <IconButton icon="close" label="Keep" onClick={() => setIsRemoving(false)} />
        </span>
      ) : (
        <Menu
          icon="more"
          label={`More about ${title}`}
          choices={[
            {
              label: summary.isPinned ? "Unpin" : "Pin",
              choose: () => chat.change(id, { isPinned: !summary.isPinned }),
            },
            { label: "Rename", choose: () => setIsRenaming(true) },
            {
              label: "Save as Markdown",
              choose: () => void chat.attempt(() => saveAsMarkdown(id)),
            },
            {
              label: "Save as JSON",
              choose: () => void chat.attempt(() => saveAsJson(id, title)),
            },
            { label: "Delete …", isDangerous: true, choose: () => setIsRemoving(true) },
          ]}
        />
      )}
    </li>
  );
}
