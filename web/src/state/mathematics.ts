/** Formulas in the notations that models use, in the one that the page reads: between `$$`. */

// Code is left alone, and so is what is formula already. A single dollar opens a formula where no
// blank follows it, and closes one after no blank and before no digit: "$5 and $10" are prices. All
// but blocks of code is bounded, so that a text of openings alone takes no longer than another.
const PARTS = new RegExp(
  [
    /(?<block>^ {0,3}(?<fence>`{3,}|~{3,})[^\n]*\n[\s\S]*?(?:^ {0,3}\k<fence>[`~]*[ \t]*$|$(?![\s\S])))/,
    /(?<code>(?<ticks>`+)[^`][\s\S]{0,500}?\k<ticks>(?!`))/,
    /\$\$(?<ready>[\s\S]{0,2000}?)\$\$/,
    /\\\[(?<display>[\s\S]{1,2000}?)\\\]/,
    /\\\((?<inline>[\s\S]{1,1000}?)\\\)/,
    /(?<![\\$\w])\$(?!\s)(?<dollars>(?:\\.|[^$\\\n]){1,500}?)(?<!\s)\$(?![\d$])/,
  ]
    .map(({ source }) => source)
    .join("|"),
  "gm",
);

type Groups = Partial<Record<"display" | "inline" | "dollars" | "ready", string>>;

export function withFormulas(markdown: string): string {
  if (!/\$|\\[([]/.test(markdown)) return markdown;
  return markdown.replace(PARTS, (whole: string, ...rest: unknown[]) => {
    const { display, inline, dollars, ready } = rest.at(-1) as Groups;
    const offset = rest.at(-3) as number;
    if (display !== undefined) return block(display, markdown, offset);
    const formula = inline ?? dollars;
    if (formula !== undefined) return `$$${formula.trim()}$$`;
    // One that has a line to itself is set on a line of its own.
    return ready !== undefined &&
      indentAt(markdown, offset) !== null &&
      endsLine(markdown, offset + whole.length)
      ? block(ready, markdown, offset)
      : whole;
  });
}

/** The blanks before `offset` if its line has nothing else there, or null. */
function indentAt(text: string, offset: number): string | null {
  let start = offset;
  while (text[start - 1] === " " || text[start - 1] === "\t") start -= 1;
  return start === 0 || text[start - 1] === "\n" ? text.slice(start, offset) : null;
}

function endsLine(text: string, offset: number): boolean {
  let end = offset;
  while (text[end] === " " || text[end] === "\t") end += 1;
  return end === text.length || text[end] === "\n";
}

/** Set on lines of its own, as far in as the line on which it began. */
function block(formula: string, text: string, offset: number): string {
  const before = indentAt(text, offset);
  const indent = before ?? "";
  const begin = before === null ? "\n\n" : "";
  // A blank line would end the paragraph, and with it the formula.
  const lines = formula.trim().replace(/\n\s*/g, `\n${indent}`);
  return `${begin}$$\n${indent}${lines}\n${indent}$$\n`;
}
