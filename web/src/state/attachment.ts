/** Files that go into a message as text. */

/** More does not fit into the context of any model that a CPU runs. */
const MAX_BYTES = 1 << 20;

/** The file as fenced code, under its name. Throws what the reader should know. */
export async function attached(file: File): Promise<string> {
  if (file.size > MAX_BYTES) throw new Error(`${file.name}: expected at most 1 MB of text`);
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    text = "\0";
  }
  if (text.includes("\0")) throw new Error(`${file.name}: expected a file of text`);
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
  const fence = "`".repeat(longest + 1);
  const language = /\.(\w+)$/.exec(file.name)?.[1] ?? "";
  return `${file.name}:\n${fence}${language}\n${text.replace(/\n$/, "")}\n${fence}\n`;
}
