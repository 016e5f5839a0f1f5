import { useState } from "react";
import styles from "./Question.module.css";

/** Beyond this a message is folded: a pasted file would push its answer out of sight. */
const MAX_LENGTH = 1500;
const MAX_LINES = 15;

/** What the reader said, as it was typed. */
export function Question({ text }: { text: string }) {
  const [isWhole, setIsWhole] = useState(false);
  const isLong = text.length > MAX_LENGTH || text.split("\n", MAX_LINES + 1).length > MAX_LINES;
  return (
    <div className={styles.question} dir="auto">
      <div className={styles.text} data-folded={isLong && !isWhole}>
        {text}
      </div>
      {isLong && (
        <button type="button" aria-expanded={isWhole} onClick={() => setIsWhole(!isWhole)}>
          {isWhole ? "Show less" : "Show all"}
        </button>
      )}
    </div>
  );
}
