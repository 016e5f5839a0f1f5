// @vitest-environment node
import { expect, test } from "vitest";
import { childrenOf, newestLeaf, threadTo } from "../../src/state/tree";

const node = (id: string, parent: string | null) => ({ id, parent });
// a ─ b ─ c
//   └ d ─ e
//       └ f
const TREE = [
  node("a", null),
  node("b", "a"),
  node("c", "b"),
  node("d", "a"),
  node("e", "d"),
  node("f", "d"),
];
const ids = (nodes: { id: string }[]) => nodes.map(({ id }) => id).join("");

test("a thread goes from the first message to its leaf", () => {
  expect(ids(threadTo(TREE, "e"))).toBe("ade");
  expect(threadTo(TREE, null)).toEqual([]);
});

test("siblings stand in the order in which they were made", () => {
  expect(ids([...(childrenOf(TREE).get("a") ?? [])])).toBe("bd");
});

test("a branch is shown down to what was made last in it", () => {
  expect(newestLeaf(childrenOf(TREE), "d")).toBe("f");
  expect(newestLeaf(childrenOf(TREE), "b")).toBe("c");
});

test("a circle of parents, which no server of ours sends, ends all the same", () => {
  expect(ids(threadTo([node("x", "y"), node("y", "x")], "x"))).toBe("yx");
});
