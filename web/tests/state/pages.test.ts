import { expect, test } from "vitest";
import type { Figures } from "../../src/api/chat";
import { PAGE, pagesOf, runsOf } from "../../src/components/PageMap";

const reply = (figures: Partial<Figures>): Figures => ({
  promptTokens: 0,
  cachedTokens: 0,
  generatedTokens: 0,
  drafted: 0,
  accepted: 0,
  firstPiece: 0,
  decodeSeconds: 0,
  readAhead: 0,
  warnings: [],
  ...figures,
});

test("every position has one origin", () => {
  const runs = runsOf([
    reply({ promptTokens: 100, cachedTokens: 80, readAhead: 50, generatedTokens: 20, accepted: 5 }),
    reply({ promptTokens: 160, cachedTokens: 150, readAhead: 30, generatedTokens: 10 }),
  ]);
  expect(runs).toEqual([
    { kind: "shared", count: 30 },
    { kind: "typed", count: 50 },
    { kind: "read", count: 20 },
    { kind: "written", count: 15 },
    { kind: "accepted", count: 5 },
    { kind: "typed", count: 30 },
    { kind: "read", count: 10 },
    { kind: "written", count: 10 },
  ]);
});

test("runs are cut into pages of 64", () => {
  const pages = pagesOf([
    { kind: "read", count: 70 },
    { kind: "written", count: 60 },
  ]);
  expect(pages.map((page) => page.reduce((sum, run) => sum + run.count, 0))).toEqual([
    PAGE,
    PAGE,
    2,
  ]);
  expect(pages[1]).toEqual([
    { kind: "read", count: 6 },
    { kind: "written", count: 58 },
  ]);
});
