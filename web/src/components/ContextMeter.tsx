import { useFigures } from "../hooks/useFigures";
import type { Chat } from "../state/chat";
import { useStore } from "../state/store";

/** How much of the context the conversation takes. */
export function ContextMeter({ chat }: { chat: Chat }) {
  const server = useStore(chat, (state) => state.server);
  const figures = useFigures(chat).at(-1);
  const readiness = useStore(chat, (state) => state.readiness);
  if (!server) return null;
  const after = figures ? figures.promptTokens + figures.generatedTokens : 0;
  const used = Math.max(after, readiness?.total ?? 0);
  return (
    <label title="How much of the model's context this conversation takes">
      {used.toLocaleString()} of {server.context.toLocaleString()} tokens{" "}
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
