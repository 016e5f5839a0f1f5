import { useState } from "react";
import styles from "./MessageEditor.module.css";

interface Props {
  text: string;
  onSave(text: string): void;
  onCancel(): void;
}

export function MessageEditor({ text: before, onSave, onCancel }: Props) {
  const [text, setText] = useState(before);
  return (
    <form
      className={styles.editor}
      onSubmit={(event) => {
        event.preventDefault();
        if (text.trim()) onSave(text);
      }}
      onKeyDown={(event) => {
        if (event.key === "Escape") {
          event.stopPropagation();
          onCancel();
        }
      }}
    >
      <textarea
        aria-label="Edit message"
        autoFocus
        rows={Math.min(12, text.split("\n").length + 1)}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <div className={styles.buttons}>
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
        <button type="submit" className="primary" disabled={!text.trim()}>
          Send as a new branch
        </button>
      </div>
    </form>
  );
}
