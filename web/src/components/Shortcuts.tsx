import { MOD } from "../state/keys";
import { preferences } from "../state/preferences";
import { useStore } from "../state/store";
import { Dialog } from "./Dialog";
import styles from "./Shortcuts.module.css";

export function Shortcuts({ onClose }: { onClose(): void }) {
  const enterSends = useStore(preferences, (state) => state.enterSends);
  const shortcuts: [does: string, ...keys: string[]][] = [
    ["Send", ...(enterSends ? ["Enter"] : [MOD, "Enter"])],
    ["Begin a line", ...(enterSends ? ["Shift", "Enter"] : ["Enter"])],
    ["Stop the reply", "Esc"],
    ["Edit the last message, while yours is empty", "↑"],
    ["Search conversations", MOD, "K"],
    ["New conversation", MOD, "Shift", "O"],
    ["Show or hide the list", MOD, "B"],
    ["This list", MOD, "/"],
  ];
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl className={styles.shortcuts}>
        {shortcuts.map(([does, ...keys]) => (
          <div key={does}>
            <dt>{does}</dt>
            <dd>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
