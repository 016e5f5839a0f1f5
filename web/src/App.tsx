import { useCallback, useEffect, useState } from "react";
import { Banner } from "./components/Banner";
import { Composer } from "./components/Composer";
import { IconButton } from "./components/IconButton";
import { KeyPrompt } from "./components/KeyPrompt";
import { PageMap } from "./components/PageMap";
import { Settings } from "./components/Settings";
import { Shortcuts } from "./components/Shortcuts";
import { Sidebar } from "./components/Sidebar";
import { Transcript } from "./components/Transcript";
import { useAddress } from "./hooks/useAddress";
import { useShortcuts } from "./hooks/useShortcuts";
import { useTheme } from "./hooks/useTheme";
import type { Chat } from "./state/chat";
import { prefer, preferences } from "./state/preferences";
import { useStore } from "./state/store";
import styles from "./App.module.css";

export function App({ chat }: { chat: Chat }) {
  useTheme();
  const [address, go] = useAddress();
  const [dialog, setDialog] = useState<"settings" | "shortcuts" | null>(null);
  const [example, setExample] = useState<{ text: string; number: number } | null>(null);
  const title = useStore(chat, (state) => state.open.title);
  const openId = useStore(chat, (state) => state.open.id);
  const isKept = useStore(chat, (state) => state.isKept);
  const needsKey = useStore(chat.connection, (state) => state.needsKey);
  const sidebarIsOpen = useStore(preferences, (state) => state.sidebarIsOpen);
  const showsPages = useStore(preferences, (state) => state.showsPages);

  useEffect(() => void chat.start(), [chat]);

  // The address and the open conversation follow each other.
  useEffect(() => {
    if (address !== null) void chat.openConversation(address);
    else chat.startNew();
  }, [chat, address]);
  useEffect(() => {
    if (isKept && address === null) go(openId);
    // Only when it begins to be kept: going to a new one changes the address first.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [isKept, openId]);
  useEffect(() => {
    document.title = title ? `${title} · inferno` : "inferno";
  }, [title]);

  const open = useCallback(
    (id: string | null) => {
      if (id === null && address === null) chat.startNew();
      go(id);
      if (window.matchMedia("(max-width: 48rem)").matches) prefer({ sidebarIsOpen: false });
    },
    [chat, address, go],
  );
  const toggleSidebar = () => prefer({ sidebarIsOpen: !preferences.get().sidebarIsOpen });
  useShortcuts({
    escape: () => {
      // Of a dialog, it closes that.
      const isWriting = chat.get().replies.has(chat.get().open.id);
      if (!isWriting || document.querySelector("dialog[open]")) return false;
      chat.stop();
      return true;
    },
    "mod+k": () => {
      prefer({ sidebarIsOpen: true });
      window.setTimeout(() => document.getElementById("search")?.focus());
    },
    "mod+shift+o": () => open(null),
    "mod+b": toggleSidebar,
    "mod+/": () => setDialog("shortcuts"),
  });
  const onExample = useCallback(
    (text: string) => setExample((before) => ({ text, number: (before?.number ?? 0) + 1 })),
    [],
  );

  return (
    <div className={styles.app} data-sidebar={sidebarIsOpen}>
      {sidebarIsOpen && (
        <Sidebar
          chat={chat}
          onOpen={open}
          onSettings={() => setDialog("settings")}
          onShortcuts={() => setDialog("shortcuts")}
        />
      )}
      <main className={styles.main}>
        <header className={styles.head}>
          <IconButton
            icon="menu"
            label={sidebarIsOpen ? "Hide conversations" : "Show conversations"}
            aria-expanded={sidebarIsOpen}
            onClick={toggleSidebar}
          />
          <span className={styles.title}>{title || "New conversation"}</span>
          <IconButton
            icon="settings"
            label="Conversation settings"
            onClick={() => setDialog("settings")}
          />
        </header>
        <Transcript chat={chat} onExample={onExample} />
        <div className={styles.foot}>
          <Banner chat={chat} />
          {showsPages && <PageMap chat={chat} />}
          <Composer chat={chat} example={example} />
        </div>
      </main>
      {dialog === "settings" && <Settings chat={chat} onClose={() => setDialog(null)} />}
      {dialog === "shortcuts" && <Shortcuts onClose={() => setDialog(null)} />}
      {needsKey && (
        <KeyPrompt
          onGiven={() => {
            chat.connection.keyIsGiven();
            void chat.start();
            if (address !== null) void chat.openConversation(address);
          }}
        />
      )}
    </div>
  );
}
