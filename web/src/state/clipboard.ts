/** Puts `text` on the clipboard, and tells whether that worked. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // There is none on a page that came over plain HTTP from another machine: the old way is left.
    return copySelected(text);
  }
}

function copySelected(text: string): boolean {
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "visually-hidden";
  // Beside the button that was pressed: what is outside of an open dialog cannot be selected.
  const focused = document.activeElement as HTMLElement | null;
  (focused?.parentElement ?? document.body).append(field);
  field.focus();
  field.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    field.remove();
    focused?.focus();
  }
}
