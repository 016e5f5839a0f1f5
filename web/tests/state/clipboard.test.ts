import { afterEach, expect, test, vi } from "vitest";
import { copy } from "../../src/state/clipboard";

afterEach(() => vi.unstubAllGlobals());

test("a page from another machine, which has no clipboard, copies the old way", async () => {
  vi.stubGlobal("navigator", {});
  let copied = "";
  document.execCommand = () => {
    copied = (document.activeElement as HTMLTextAreaElement).value;
    return true;
  };
  expect(await copy("text")).toBe(true);
  expect(copied).toBe("text");
  expect(document.querySelector("textarea")).toBeNull();
});
