import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import type { Message as MessageState } from "../../src/api/conversations";
import { Announcer } from "../../src/components/Announcer";
import { Message } from "../../src/components/Message";
import { prefer } from "../../src/state/preferences";
import { Reply } from "../../src/state/reply";

afterEach(cleanup);

const actions = { edit: vi.fn(), regenerate: vi.fn(), continue: vi.fn(), show: vi.fn() };

function show(message: Partial<MessageState>, isBusy = false) {
  const whole: MessageState = {
    id: "m",
    parent: null,
    role: "assistant",
    content: "",
    status: "complete",
    finishReason: "stop",
    figures: null,
    ...message,
  };
  return render(
    <Message message={whole} siblings={[whole]} isLast isBusy={isBusy} actions={actions} />,
  );
}

test("a thought is folded", () => {
  show({ content: "<think>\nHm\n</think>\n\nHi" });
  expect(screen.getByText("Thought").closest("details")?.open).toBe(false);
  expect(screen.getByText("Hi").closest("details")).toBeNull();
});

test("an answer that is JSON is shown as code, in lines", () => {
  const { container } = show({ content: '{"city": "Paris"}' });
  expect(container.querySelector("pre")?.textContent).toBe('{\n  "city": "Paris"\n}');
});

test("what the server warns of stands below the reply", () => {
  const none = { promptTokens: 0, cachedTokens: 0, generatedTokens: 0, drafted: 0, accepted: 0 };
  const warnings = ["the oldest 2 messages were dropped to fit the context"];
  show({ figures: { ...none, firstPiece: 0, decodeSeconds: 0, readAhead: 0, warnings } });
  expect(screen.getByText(/oldest 2 messages/).closest("details")).toBeNull();
});

test("a long message is folded, and shown whole when asked", () => {
  show({ role: "user", content: "line\n".repeat(50) });
  const button = screen.getByRole("button", { name: "Show all" });
  fireEvent.click(button);
  expect(button.getAttribute("aria-expanded")).toBe("true");
});

test("Enter sends an edited message, and the input method's Enter does not", () => {
  prefer({ enterSends: true });
  show({ role: "user", content: "Hello" });
  fireEvent.click(screen.getByLabelText("Edit message"));
  const field = screen.getByRole("textbox", { name: "Edit message" });
  fireEvent.change(field, { target: { value: "Hello, you" } });
  fireEvent.keyDown(field, { key: "Enter", isComposing: true });
  expect(actions.edit).not.toHaveBeenCalled();
  fireEvent.keyDown(field, { key: "Enter" });
  expect(actions.edit).toHaveBeenCalledWith(expect.anything(), "Hello, you");
});

test("a screen reader hears the end of a reply, however short it was", () => {
  const reply = new Reply("c", "m", "", 0);
  const { container, rerender } = render(<Announcer reply={reply} />);
  act(() => reply.add("Paris."));
  expect(container.textContent).toBe("");
  rerender(<Announcer reply={undefined} />);
  expect(container.textContent).toBe("Paris.");
});
