import type { Chat } from "../state/chat";
import { useStore } from "../state/store";
import { threadTo } from "../state/tree";

/** How much of the context the conversation takes. */
export function ContextMeter({ chat }: { chat: Chat }) {
  const server = useStore(chat, (state) => state.server);
  const messages = useStore(chat, (state) => state.open.messages);
  const leaf = useStore(chat, (state) => state.open.leaf);
  const readiness = useStore(chat, (state) => state.readiness);
  if (!server) return null;
  const figures = threadTo(messages, leaf).findLast((message) => message.figures)?.figures;
  const after = figures ? figures.promptTokens + figures.generatedTokens : 0;
  const used = Math.max(after, readiness?.total ?? 0);
  return (
    <label>
      {used.toLocaleString()} of {server.context.toLocaleString()}{" "}
      <meter
        aria-label="Context used"
        min={0}
        max={server.context}
        high={0.8 * server.context}
        value={used}
      />
    </label>
  );
}
