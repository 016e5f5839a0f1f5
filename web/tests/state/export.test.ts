// @vitest-environment node
import { expect, test } from "vitest";
import { markdownOf } from "../../src/state/export";

test("a conversation as Markdown is the branch that was looked at, without thoughts", () => {
  const message = (id: string, parent: string | null, content: string) => ({
    id,
    parent,
    role: parent ? ("assistant" as const) : ("user" as const),
    content,
    status: "complete" as const,
    finishReason: null,
    figures: null,
  });
  const conversation = {
    id: "c",
    title: "Rivers",
    isPinned: false,
    changedAt: "",
    system: "Be brief.",
    leaf: "b",
    messages: [
      message("q", null, "Name one."),
      message("a", "q", "The Elbe."),
      message("b", "q", "<think>Hm</think>\n\nThe Oder."),
    ],
  };
  expect(markdownOf(conversation)).toBe(
    "# Rivers\n\n**System prompt**\n\nBe brief.\n\n**You**\n\nName one.\n\n**Model**\n\nThe Oder.\n",
  );
});
