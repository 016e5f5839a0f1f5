/** Formulas in the notations that models use, in the one that the page reads: between `$$`. */

// Code is left alone, and so is what is formula already. A single dollar opens a formula where no
// blank follows it, and closes one after no blank and before no digit: "$5 and $10" are prices.
const PARTS =
  /(^ {0,3}(`{3,}|~{3,})[^\n]*\n[\s\S]*?(?:^ {0,3}\2[`~]*[ \t]*$|$(?![\s\S])))|(`+)[^`][\s\S]*?\3(?!`)|\$\$[\s\S]*?\$\$|\\\[([\s\S]+?)\\\]|\\\(([\s\S]+?)\\\)|(?<![\\$\w])\$(?!\s)((?:\\.|[^$\\\n])+?)(?<!\s)\$(?![\d$])/gm;

export function withFormulas(markdown: string): string {
  if (!/\$|\\[([]/.test(markdown)) return markdown;
  return markdown.replace(
    PARTS,
    (
      whole: string,
      fenced: string | undefined,
      _fence: string | undefined,
      code: string | undefined,
      display: string | undefined,
      inline: string | undefined,
      dollars: string | undefined,
      offset: number,
    ) => {
      if (fenced !== undefined || code !== undefined) return whole;
      if (display !== undefined) return block(display, markdown, offset);
      const formula = inline ?? dollars;
      if (formula !== undefined) return `$$${formula.trim()}$$`;
      // One that has a line to itself is set on a line of its own.
      return isAlone(markdown, offset, whole.length)
        ? block(whole.slice(2, -2), markdown, offset)
        : whole;
    },
  );
}

function lineStart(text: string, offset: number): string {
  return text.slice(text.lastIndexOf("\n", offset - 1) + 1, offset);
}

function isAlone(text: string, offset: number, length: number): boolean {
  const after = text.slice(offset + length).split("\n", 1)[0] ?? "";
  return !lineStart(text, offset).trim() && !after.trim();
}

/** Set on lines of its own, as far in as the line on which it began. */
function block(formula: string, text: string, offset: number): string {
  const before = lineStart(text, offset);
  const indent = before.trim() ? "" : before;
  const begin = before.trim() ? `\n\n${indent}` : "";
  // A blank line would end the paragraph, and with it the formula.
  const lines = formula.trim().replace(/\n\s*/g, `\n${indent}`);
  return `${begin}$$\n${indent}${lines}\n${indent}$$\n`;
}
