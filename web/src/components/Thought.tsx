import { Markdown } from "./Markdown";
import styles from "./Thought.module.css";

/** What a model thought before it replied: folded, for who wants to see it. */
export function Thought({ text, isThinking }: { text: string; isThinking: boolean }) {
  return (
    <details className={styles.thought}>
      <summary>{isThinking ? "Thinking …" : "Thought"}</summary>
      <Markdown text={text} />
    </details>
  );
}
