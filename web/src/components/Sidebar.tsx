import { useRef, useState } from "react";
import { exportConversations, type Summary } from "../api/conversations";
import type { Chat } from "../state/chat";
import { useStore } from "../state/store";
import { IconButton } from "./IconButton";
import { Icon } from "./Icon";
import styles from "./Sidebar.module.css";

interface Props {
  chat: Chat;
  onOpen(id: string | null): void;
  onSettings(): void;
  onShortcuts(): void;
}

export function Sidebar({ chat, onOpen, onSettings, onShortcuts }: Props) {
  const summaries = useStore(chat, (state) => state.summaries);
  const search = useStore(chat, (state) => state.search);
  const openId = useStore(chat, (state) => state.open.id);
  const file = useRef<HTMLInputElement>(null);
  const pinned = summaries.filter((summary) => summary.isPinned);
  const others = summaries.filter((summary) => !summary.isPinned);
  const list = (items: readonly Summary[]) =>
    items.map((summary) => (
      <Entry
        key={summary.id}
        chat={chat}
        summary={summary}
        isOpen={summary.id === openId}
        onOpen={onOpen}
      />
    ));
  return (
    <nav className={styles.sidebar} aria-label="Conversations">
      <button type="button" className={styles.new} onClick={() => onOpen(null)}>
        <Icon name="plus" /> New conversation
      </button>
      <input
        type="search"
        id="search"
        aria-label="Search conversations"
        placeholder="Search"
        value={search}
        onChange={(event) => void chat.search(event.target.value)}
      />
      <div className={styles.list}>
        {pinned.length > 0 && (
          <>
            <h2>Pinned</h2>
            <ul>{list(pinned)}</ul>
          </>
        )}
        {pinned.length > 0 && others.length > 0 && <h2>Others</h2>}
        <ul>{list(others)}</ul>
        {summaries.length === 0 && <p>{search ? "Nothing found." : "No conversations yet."}</p>}
      </div>
      <div className={styles.foot}>
        <IconButton icon="settings" label="Settings" onClick={onSettings} />
        <IconButton icon="keyboard" label="Keyboard shortcuts" onClick={onShortcuts} />
        <IconButton icon="save" label="Export conversations" onClick={() => void save()} />
        <IconButton
          icon="open"
          label="Import conversations"
          onClick={() => file.current?.click()}
        />
        <input
          ref={file}
          type="file"
          accept="application/json,.json"
          hidden
          aria-label="File of conversations"
          onChange={(event) => {
            const chosen = event.target.files?.[0];
            event.target.value = "";
            if (chosen) void chat.import(chosen);
          }}
        />
      </div>
    </nav>
  );
}

async function save(): Promise<void> {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await exportConversations());
  link.download = "conversations.json";
  link.click();
  URL.revokeObjectURL(link.href);
}

interface EntryProps {
  chat: Chat;
  summary: Summary;
  isOpen: boolean;
  onOpen(id: string): void;
}

function Entry({ chat, summary, isOpen, onOpen }: EntryProps) {
  const [isRenaming, setIsRenaming] = useState(false);
  const [isRemoving, setIsRemoving] = useState(false);
  const isWriting = useStore(chat, (state) => state.replies.has(summary.id));
  if (isRenaming) {
    const rename = (title: string) => {
      setIsRenaming(false);
      if (title.trim() && title !== summary.title) chat.change(summary.id, { title: title.trim() });
    };
    return (
      <li>
        <input
          aria-label="Title"
          autoFocus
          defaultValue={summary.title}
          onBlur={(event) => rename(event.target.value)}
          onKeyDown={(event) => {
            if (event.nativeEvent.isComposing) return;
            if (event.key === "Enter") rename(event.currentTarget.value);
            if (event.key === "Escape") setIsRenaming(false);
          }}
        />
      </li>
    );
  }
  return (
    <li className={styles.entry} data-open={isOpen}>
      <button
        type="button"
        className={styles.title}
        aria-current={isOpen ? "page" : undefined}
        onClick={() => onOpen(summary.id)}
        onDoubleClick={() => setIsRenaming(true)}
      >
        {summary.title || "Untitled"}
        {isWriting && " …"}
      </button>
      {isRemoving ? (
        <span className={styles.tools} data-shown="true">
          <button
            type="button"
            className="danger"
            autoFocus
            onClick={() => chat.remove(summary.id)}
          >
            Delete
          </button>
          <IconButton icon="close" label="Keep" onClick={() => setIsRemoving(false)} />
        </span>
      ) : (
        <span className={styles.tools}>
          <IconButton
            icon="pin"
            label={summary.isPinned ? "Unpin" : "Pin"}
            onClick={() => chat.change(summary.id, { isPinned: !summary.isPinned })}
          />
          <IconButton icon="edit" label="Rename" onClick={() => setIsRenaming(true)} />
          <IconButton icon="trash" label="Delete" onClick={() => setIsRemoving(true)} />
        </span>
      )}
    </li>
  );
}
