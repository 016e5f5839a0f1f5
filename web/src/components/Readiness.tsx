import type { Chat } from "../state/chat";
import { preferences } from "../state/preferences";
import { useStore } from "../state/store";

/** How much of the draft the server has read already. */
export function Readiness({ chat, isEmpty }: { chat: Chat; isEmpty: boolean }) {
  const readiness = useStore(chat, (state) => state.readiness);
  const readsAhead = useStore(preferences, (state) => state.readsAhead);
  if (!readsAhead || isEmpty || !readiness || !readiness.total) return <span />;
  const share = Math.floor((100 * readiness.committed) / readiness.total);
  return (
    <span
      title={`${readiness.committed} of ${readiness.total} tokens are processed`}
      data-readiness={share}
    >
      {share >= 100 ? "ready" : `ready ${share} %`}
    </span>
  );
}
