import { useState, type KeyboardEvent } from "react";
import { preferences } from "../state/preferences";
import { isSend } from "../state/keys";
import { useStore } from "../state/store";
import styles from "./MessageEditor.module.css";

interface Props {
  text: string;
  /** Nothing can be sent while a reply is being written. */
  isBusy: boolean;
  onSave(text: string): void;
  onCancel(): void;
}

export function MessageEditor({ text: before, isBusy, onSave, onCancel }: Props) {
  const [text, setText] = useState(before);
  const enterSends = useStore(preferences, (state) => state.enterSends);
  const save = () => {
    if (text.trim() && !isBusy) onSave(text.trim());
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      onCancel();
    }
  };
  return (
    <form
      className={styles.editor}
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
      onKeyDown={onKeyDown}
    >
      <textarea
        aria-label="Edit message"
        dir="auto"
        autoFocus
        rows={Math.min(12, text.split("\n").length + 1)}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onFocus={(event) => event.target.setSelectionRange(text.length, text.length)}
        onKeyDown={(event) => {
          if (!isSend(event, enterSends)) return;
          event.preventDefault();
          save();
        }}
      />
      <div className={styles.buttons}>
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
        <button type="submit" className="primary" disabled={!text.trim() || isBusy}>
          Send as a new branch
        </button>
      </div>
    </form>
  );
}
