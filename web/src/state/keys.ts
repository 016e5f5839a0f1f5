/** Keys, as they are pressed and as they are written. */

import type { KeyboardEvent } from "react";

/** Tells whether a key sends what was written, and is not the input method's or for a new line. */
export function isSend(event: KeyboardEvent, enterSends: boolean): boolean {
  // Enter that ends a composition of characters belongs to the input method. Safari says so only
  // by the key code of keys that are being processed.
  if (event.key !== "Enter" || event.nativeEvent.isComposing || event.keyCode === 229) return false;
  const isPlain = !event.shiftKey && !event.ctrlKey && !event.metaKey && !event.altKey;
  return enterSends ? isPlain : event.shiftKey || event.ctrlKey || event.metaKey;
}

/** What "mod" is on this reader's keyboard. */
export const MOD = /Mac|iP(hone|ad)/.test(navigator.platform) ? "⌘" : "Ctrl";
