// @vitest-environment node
import { expect, test } from "vitest";
import { withFormulas } from "../../src/state/mathematics";

test.each([
  ["in a sentence", "so $x+1$ is", "so $$x+1$$ is"],
  ["in LaTeX's brackets", "so \\(x\\) is", "so $$x$$ is"],
  ["on lines of its own", "\\[\nx\n\\]", "$$\nx\n$$\n"],
  ["on a line of its own", "$$x$$", "$$\nx\n$$\n"],
  ["in a list", "- so\n  \\[x\\]", "- so\n  $$\n  x\n  $$\n"],
])("a formula %s is between two dollars", (_, text, expected) => {
  expect(withFormulas(text)).toBe(expected);
});

test.each([
  ["prices", "$5 and $10, or $ 3"],
  ["a shell's variables", "`$HOME and $PATH`"],
  ["a block of code", "```sh\necho $A $B\n```"],
  ["a block that is still coming", "```sh\necho $A$ \\(x\\)"],
  ["an escaped dollar", "\\$x$ y"],
])("%s stay as they are", (_, text) => {
  expect(withFormulas(text)).toBe(text);
});
