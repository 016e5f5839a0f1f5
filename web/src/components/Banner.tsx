import type { Chat } from "../state/chat";
import { useStore } from "../state/store";
import { IconButton } from "./IconButton";
import styles from "./Banner.module.css";

/** What went wrong, and what can be done. */
export function Banner({ chat }: { chat: Chat }) {
  const isLost = useStore(chat.connection, (state) => state.isLost);
  const isLoading = useStore(chat.connection, (state) => state.isLoading);
  const failure = useStore(chat, (state) => state.failure);
  if (isLost) {
    return (
      <div className={styles.banner} role="alert">
        <span>
          The server cannot be reached. What you write here is kept; the page tries again by itself.
        </span>
        <button type="button" onClick={() => void chat.connection.retry()}>
          Try now
        </button>
      </div>
    );
  }
  if (isLoading) {
    return (
      <div className={styles.banner} data-quiet="true" role="status">
        The model is being loaded. You can write already.
      </div>
    );
  }
  if (!failure) return null;
  return (
    <div className={styles.banner} role="alert">
      <span>{failure}</span>
      <IconButton icon="close" label="Dismiss" onClick={() => chat.dismiss()} />
    </div>
  );
}
