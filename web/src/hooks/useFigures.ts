import { useMemo } from "react";
import type { Figures } from "../api/chat";
import type { Chat } from "../state/chat";
import { Store, useStore } from "../state/store";
import { threadTo } from "../state/tree";

const NO_REPLY = new Store<{ figures: Figures | null }>({ figures: null });

/** What the replies of the open conversation took, the one that is being written included. */
export function useFigures(chat: Chat): Figures[] {
  const messages = useStore(chat, (state) => state.open.messages);
  const leaf = useStore(chat, (state) => state.open.leaf);
  const reply = useStore(chat, (state) => state.replies.get(state.open.id));
  const live = useStore<{ figures: Figures | null }, Figures | null>(
    reply ?? NO_REPLY,
    (state) => state.figures,
  );
  return useMemo(() => {
    const kept = threadTo(messages, leaf).flatMap((message) =>
      message.id === reply?.message ? [] : (message.figures ?? []),
    );
    return live ? [...kept, live] : kept;
  }, [messages, leaf, reply, live]);
}
