import { useCallback, useEffect, useMemo, useState } from "react";
import { Banner } from "./components/Banner";
import { Composer } from "./components/Composer";
import { CopyButton } from "./components/CopyButton";
import { IconButton } from "./components/IconButton";
import { KeyPrompt } from "./components/KeyPrompt";
import { PageMap } from "./components/PageMap";
import { Settings } from "./components/Settings";
import { Shortcuts } from "./components/Shortcuts";
import { Sidebar } from "./components/Sidebar";
import { Transcript } from "./components/Transcript";
import { useAddress } from "./hooks/useAddress";
import { useShortcuts } from "./hooks/useShortcuts";
import { useSidebar } from "./hooks/useSidebar";
import { useTheme } from "./hooks/useTheme";
import type { Chat } from "./state/chat";
import { isAway as isAwayIn } from "./state/connection";
import { markdownOf } from "./state/export";
import { preferences } from "./state/preferences";
import { useStore } from "./state/store";
import styles from "./App.module.css";

/** While one of these is open, Esc closes it. */
const OVER = "dialog[open], [role=menu][data-open=true]";

export function App({ chat }: { chat: Chat }) {
  useTheme();
  const [address, go] = useAddress();
  const [dialog, setDialog] = useState<"settings" | "shortcuts" | null>(null);
  const [example, setExample] = useState<{ text: string; number: number } | null>(null);
  const sidebar = useSidebar();
  const title = useStore(chat, (state) => state.open.title);
  const openId = useStore(chat, (state) => state.open.id);
  const isAddressed = useStore(chat, (state) => state.isKept && state.serverKeeps);
  const isAway = useStore(chat.connection, isAwayIn);
  const needsKey = useStore(chat.connection, (state) => state.needsKey);
  const keyIsWrong = useStore(chat.connection, (state) => state.keyIsWrong);
  const showsPages = useStore(preferences, (state) => state.showsPages);

  // The server that comes back may be another, with another model.
  useEffect(() => {
    if (!isAway) void chat.start();
  }, [chat, isAway]);

  // The address and the open conversation follow each other.
  useEffect(() => {
    if (isAway) return;
    if (address !== null) void chat.openConversation(address);
    else if (chat.get().isKept) chat.startNew();
  }, [chat, address, isAway]);
  useEffect(() => {
    if (isAddressed && address !== openId) go(openId);
    // Only when it begins to be kept: going to another changes the address first.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [isAddressed, openId]);
  useEffect(() => {
    document.title = title ? `${title} · inferno` : "inferno";
  }, [title]);

  const { isOpen, isOver, show } = sidebar;
  const open = useCallback(
    (id: string | null) => {
      if (id === null && !isAddressed && chat.get().isKept) chat.startNew();
      go(id);
      if (isOver) show(false);
    },
    [chat, go, isAddressed, isOver, show],
  );
  useShortcuts({
    escape: () => {
      if (document.querySelector(OVER)) return false;
      if (isOver && isOpen) show(false);
      else if (chat.get().replies.has(chat.get().open.id)) chat.stop();
      else return false;
      return true;
    },
    "mod+k": () => {
      show(true);
      window.setTimeout(() => document.getElementById("search")?.focus());
    },
    "mod+shift+o": () => open(null),
    "mod+b": () => show(!isOpen),
    "mod+/": () => setDialog("shortcuts"),
  });
  const onExample = useCallback(
    (text: string) => setExample((before) => ({ text, number: (before?.number ?? 0) + 1 })),
    [],
  );
  const onSettings = useCallback(() => setDialog("settings"), []);

  return (
    <div className={styles.app}>
      {isOpen && (
        <Sidebar
          chat={chat}
          onOpen={open}
          onClose={isOver ? () => show(false) : undefined}
          onSettings={onSettings}
          onShortcuts={() => setDialog("shortcuts")}
        />
      )}
      {isOpen && isOver && (
        <button
          type="button"
          className={styles.shade}
          tabIndex={-1}
          aria-hidden="true"
          onClick={() => show(false)}
        />
      )}
      <main className={styles.main} inert={isOpen && isOver}>
        <header className={styles.head}>
          <IconButton
            icon="menu"
            label={isOpen ? "Hide conversations" : "Show conversations"}
            aria-expanded={isOpen}
            onClick={() => show(!isOpen)}
          />
          <h1 className={styles.title} dir="auto">
            {title || "New conversation"}
          </h1>
          <ModelName chat={chat} />
          <CopyConversation chat={chat} />
          <IconButton icon="settings" label="Conversation settings" onClick={onSettings} />
        </header>
        <Transcript chat={chat} onExample={onExample} onSettings={onSettings} />
        <div>
          <Banner chat={chat} />
          {showsPages && <PageMap chat={chat} />}
          <Composer chat={chat} example={example} />
        </div>
      </main>
      {dialog === "settings" && <Settings chat={chat} onClose={() => setDialog(null)} />}
      {dialog === "shortcuts" && <Shortcuts onClose={() => setDialog(null)} />}
      {needsKey && <KeyPrompt isWrong={keyIsWrong} onGiven={() => chat.connection.keyIsGiven()} />}
    </div>
  );
}

function ModelName({ chat }: { chat: Chat }) {
  const model = useStore(chat, (state) => state.server?.model);
  const hasBegun = useStore(chat, (state) => state.open.messages.length > 0);
  return model && hasBegun ? <span className={styles.model}>{model}</span> : null;
}

function CopyConversation({ chat }: { chat: Chat }) {
  const open = useStore(chat, (state) => state.open);
  const text = useMemo(() => markdownOf(open), [open]);
  return open.messages.length > 0 ? (
    <CopyButton text={text} label="Copy conversation as Markdown" />
  ) : null;
}
