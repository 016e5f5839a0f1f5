import { bytes } from "../state/numbers";
import type { Chat } from "../state/chat";
import { useStore } from "../state/store";
import styles from "./Welcome.module.css";

const EXAMPLES = [
  "Explain why the sky is blue in two sentences.",
  "Write a Python function that reverses a list.",
  "Give me three names for a quiet cat.",
];

/** What a first visit shows: the model, and something to ask it. */
export function Welcome({ chat, onExample }: { chat: Chat; onExample(text: string): void }) {
  const server = useStore(chat, (state) => state.server);
  return (
    <section className={styles.welcome}>
      <h2>{server?.model ?? "inferno"}</h2>
      {server && (
        <p>
          {bytes(server.weightBytes)} of {server.weightFormats.join(", ")} ·{" "}
          {server.context.toLocaleString()} tokens of context · {server.isa}, {server.threads}{" "}
          {server.threads === 1 ? "thread" : "threads"}
        </p>
      )}
      <p>
        It reads while you type, so its answer begins when you press Enter. What you write goes to
        this page's own server, and nowhere else.
      </p>
      <ul>
        {EXAMPLES.map((example) => (
          <li key={example}>
            <button type="button" onClick={() => onExample(example)}>
              {example}
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
