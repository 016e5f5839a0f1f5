/** Messages that were begun, one a conversation; they survive a reload. */

const PREFIX = "inferno.draft.";

export function draftOf(conversation: string): string {
  return localStorage.getItem(PREFIX + conversation) ?? "";
}

export function keepDraft(conversation: string, text: string): void {
  if (text) localStorage.setItem(PREFIX + conversation, text);
  else localStorage.removeItem(PREFIX + conversation);
}
