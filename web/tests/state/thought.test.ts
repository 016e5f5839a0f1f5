// @vitest-environment node
import { expect, test } from "vitest";
import { saidIn, ThoughtWriter } from "../../src/state/thought";

test("a text without a thought is the reply", () => {
  const text = "No <think>tags</think> count here.";
  expect(saidIn(text)).toEqual({ thought: null, isThinking: false, reply: text });
});

test("a thought that is not over has no reply yet", () => {
  expect(saidIn("<think>\nWell")).toEqual({ thought: "Well", isThinking: true, reply: "" });
});

test("what is written in pieces is read as it was", () => {
  const writer = new ThoughtWriter();
  const text =
    writer.thought("Well, ") + writer.thought("so.") + writer.reply("Hi") + writer.reply("!");
  expect(saidIn(text)).toEqual({ thought: "Well, so.", isThinking: false, reply: "Hi!" });
});
