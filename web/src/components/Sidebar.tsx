import { useEffect, useRef } from "react";
import type { Chat } from "../state/chat";
import { grouped } from "../state/ages";
import { saveAsJson } from "../state/export";
import { useStore } from "../state/store";
import { Icon } from "./Icon";
import { IconButton } from "./IconButton";
import { SidebarEntry } from "./SidebarEntry";
import styles from "./Sidebar.module.css";

interface Props {
  chat: Chat;
  onOpen(id: string | null): void;
  /** Where the list lies over the conversation. */
  onClose?: () => void;
  onSettings(): void;
  onShortcuts(): void;
}

export function Sidebar({ chat, onOpen, onClose, onSettings, onShortcuts }: Props) {
  const summaries = useStore(chat, (state) => state.summaries);
  const search = useStore(chat, (state) => state.search);
  const openId = useStore(chat, (state) => state.open.id);
  const serverKeeps = useStore(chat, (state) => state.serverKeeps);
  const file = useRef<HTMLInputElement>(null);
  const isOver = onClose !== undefined;
  const first = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (isOver) first.current?.focus();
  }, [isOver]);

  return (
    <nav className={styles.sidebar} aria-label="Conversations">
      <div className={styles.head}>
        <button
          ref={first}
          type="button"
          className={`outlined ${styles.new}`}
          onClick={() => onOpen(null)}
        >
          <Icon name="plus" /> New conversation
        </button>
        {onClose && <IconButton icon="close" label="Hide conversations" onClick={onClose} />}
      </div>
      <input
        type="search"
        id="search"
        aria-label="Search conversations"
        placeholder="Search"
        value={search}
        onChange={(event) => void chat.search(event.target.value)}
      />
      <div className={styles.list}>
        {grouped(summaries, new Date()).map(([heading, members]) => (
          <section key={heading}>
            <h2>{heading}</h2>
            <ul>
              {members.map((summary) => (
                <SidebarEntry
                  key={summary.id}
                  chat={chat}
                  summary={summary}
                  isOpen={summary.id === openId}
                  onOpen={onOpen}
                />
              ))}
            </ul>
          </section>
        ))}
        {summaries.length === 0 && (
          <p role="status">
            {!serverKeeps
              ? "This server keeps no conversations: they end with this tab."
              : search
                ? "Nothing found."
                : "No conversations yet."}
          </p>
        )}
      </div>
      <div className={styles.foot}>
        <IconButton icon="settings" label="Settings" onClick={onSettings} />
        <IconButton icon="keyboard" label="Keyboard shortcuts" onClick={onShortcuts} />
        <IconButton
          icon="save"
          label="Export conversations"
          disabled={summaries.length === 0}
          onClick={() => void chat.attempt(() => saveAsJson())}
        />
        <IconButton
          icon="open"
          label="Import conversations"
          disabled={!serverKeeps}
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
