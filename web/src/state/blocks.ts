/** Markdown in pieces that never change again once the next has begun.
 *
 * While a reply comes, only its last piece is parsed anew; a long reply would else be parsed whole
 * at every token. */

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const LIST_ITEM = /^ {0,3}([-*+]|\d{1,9}[.)])(\s|$)/;
const INDENTED = /^( {2,}|\t)/;
/** What is defined once counts everywhere, so such a text is one piece. */
const DEFINITION = /^ {0,3}\[[^\]]+\]:/m;

export function blocksOf(markdown: string): string[] {
  if (DEFINITION.test(markdown)) return [markdown];
  const blocks: string[] = [];
  let lines: string[] = [];
  let fence: string | null = null;
  let isList = false;
  let isAfterBlank = false;
  for (const line of markdown.split("\n")) {
    if (fence === null && isAfterBlank && line.trim() && lines.length) {
      // What stands further in, or is the next item, belongs to the list before the blank line.
      const goesOn = isList && (LIST_ITEM.test(line) || INDENTED.test(line));
      if (!goesOn) {
        blocks.push(lines.join("\n"));
        lines = [];
      }
    }
    if (!lines.length) isList = LIST_ITEM.test(line);
    const mark = FENCE.exec(line)?.[1];
    if (fence === null) fence = mark ?? null;
    else if (
      mark &&
      mark[0] === fence[0] &&
      mark.length >= fence.length &&
      /^\s*[`~]+\s*$/.test(line)
    )
      fence = null;
    lines.push(line);
    isAfterBlank = !line.trim();
  }
  if (lines.length) blocks.push(lines.join("\n"));
  return blocks;
}
