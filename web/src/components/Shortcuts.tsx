import { Dialog } from "./Dialog";
import styles from "./Shortcuts.module.css";

const SHORTCUTS: [keys: string, does: string][] = [
  ["Enter", "send"],
  ["Shift + Enter", "begin a line"],
  ["Esc", "stop the reply"],
  ["↑ in an empty message", "edit the last one"],
  ["Ctrl or ⌘ + K", "search conversations"],
  ["Ctrl or ⌘ + Shift + O", "new conversation"],
  ["Ctrl or ⌘ + B", "show or hide the list"],
  ["Ctrl or ⌘ + /", "this list"],
];

export function Shortcuts({ onClose }: { onClose(): void }) {
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl className={styles.shortcuts}>
        {SHORTCUTS.map(([keys, does]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
