// @vitest-environment node
import { expect, test } from "vitest";
import { grouped } from "../../src/state/ages";

const NOW = new Date(2026, 10, 30, 12);

test("conversations stand under the day they changed, and pinned ones first", () => {
  const at = (id: string, day: number, isPinned = false) => ({
    id,
    title: "",
    isPinned,
    changedAt: new Date(2026, 10, day, 9).toISOString(),
  });
  const list = [at("a", 30), at("b", 29), at("c", 25), at("d", 2), at("e", 1, true)];
  const headings = grouped(list, NOW).map(([heading, members]) => [heading, members[0]?.id]);
  expect(headings).toEqual([
    ["Pinned", "e"],
    ["Today", "a"],
    ["Yesterday", "b"],
    ["This week", "c"],
    [expect.stringContaining("2026"), "d"],
  ]);
});

test("one that was begun just now is of today", () => {
  const begun = { id: "a", title: "", isPinned: false, changedAt: "" };
  expect(grouped([begun], NOW)).toEqual([["Today", [begun]]]);
});
