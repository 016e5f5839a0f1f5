import { useEffect, useRef } from "react";

/** Keys as `event.key` in lower case, after "mod+" for Ctrl or ⌘ and "shift+". What answers false
 * has done nothing, and the key is the browser's. */
export type Shortcuts = Record<string, () => unknown>;

export function useShortcuts(shortcuts: Shortcuts): void {
  const current = useRef(shortcuts);
  useEffect(() => {
    current.current = shortcuts;
  });
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.isComposing || event.altKey) return;
      const modifiers =
        (event.ctrlKey || event.metaKey ? "mod+" : "") + (event.shiftKey ? "shift+" : "");
      const action = current.current[modifiers + event.key.toLowerCase()];
      if (action && action() !== false) event.preventDefault();
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, []);
}
