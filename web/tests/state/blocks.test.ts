// @vitest-environment node
import { expect, test } from "vitest";
import { blocksOf } from "../../src/state/blocks";

const TEXT = `# Title

A paragraph
of two lines.

- one

- two

  still two

\`\`\`python
def f():

    return 1
\`\`\`

| a | b |
|---|---|
| 1 | 2 |

The end.`;

test("blocks joined are the text", () => {
  expect(blocksOf(TEXT).join("\n")).toBe(TEXT);
});

test("a fence and a list with blank lines are one block each", () => {
  const blocks = blocksOf(TEXT);
  expect(blocks).toHaveLength(6);
  expect(blocks[2]).toContain("still two");
  expect(blocks[3]).toContain("return 1");
});

test("a block that is over stays the same, whatever follows", () => {
  for (let length = 1; length < TEXT.length; length += 1) {
    const early = blocksOf(TEXT.slice(0, length)).slice(0, -1);
    const late = blocksOf(TEXT);
    // The last of those may yet turn out to be a list that goes on.
    for (const [index, block] of early.slice(0, -1).entries()) expect(late[index]).toBe(block);
  }
});

test("a longer fence is not closed by a shorter one", () => {
  expect(blocksOf("````\n```\n\ntext\n````\n\nafter")).toHaveLength(2);
});

test("a text with definitions is one block, since they count everywhere", () => {
  expect(blocksOf("See [a].\n\n[a]: https://example.com\n\nmore")).toHaveLength(1);
});
