import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Composer } from "../../src/components/Composer";
import { Chat } from "../../src/state/chat";
import { prefer } from "../../src/state/preferences";
import { FakeServer } from "../server";

let chat: Chat;

beforeEach(() => {
  localStorage.clear();
  prefer({ enterSends: true, readsAhead: true });
  new FakeServer();
  chat = new Chat();
});
afterEach(cleanup);

function field(): HTMLTextAreaElement {
  return screen.getByLabelText("Message");
}

function write(text: string): void {
  fireEvent.change(field(), { target: { value: text } });
}

test("Enter sends, and Shift+Enter does not", () => {
  const send = vi.spyOn(chat, "send").mockReturnValue(true);
  render(<Composer chat={chat} example={null} />);
  write("Hello");
  fireEvent.keyDown(field(), { key: "Enter", shiftKey: true });
  expect(send).not.toHaveBeenCalled();
  fireEvent.keyDown(field(), { key: "Enter" });
  expect(send).toHaveBeenCalledWith("Hello");
  expect(field().value).toBe("");
});

test("Enter that ends a composition of characters does not send", () => {
  const send = vi.spyOn(chat, "send").mockReturnValue(true);
  render(<Composer chat={chat} example={null} />);
  write("にほん");
  fireEvent.keyDown(field(), { key: "Enter", isComposing: true });
  fireEvent.keyDown(field(), { key: "Enter", keyCode: 229 });
  expect(send).not.toHaveBeenCalled();
});

test("with Enter for lines, Ctrl+Enter sends", () => {
  prefer({ enterSends: false });
  const send = vi.spyOn(chat, "send").mockReturnValue(true);
  render(<Composer chat={chat} example={null} />);
  write("Hello");
  fireEvent.keyDown(field(), { key: "Enter" });
  expect(send).not.toHaveBeenCalled();
  fireEvent.keyDown(field(), { key: "Enter", ctrlKey: true });
  expect(send).toHaveBeenCalledOnce();
});

test("white space alone is not sent", () => {
  const send = vi.spyOn(chat, "send").mockReturnValue(true);
  render(<Composer chat={chat} example={null} />);
  write("  \n ");
  fireEvent.keyDown(field(), { key: "Enter" });
  expect(send).not.toHaveBeenCalled();
});

test("a draft is composed when the keys have rested, once", () => {
  vi.useFakeTimers();
  try {
    const compose = vi.spyOn(chat, "compose").mockResolvedValue();
    render(<Composer chat={chat} example={null} />);
    for (const text of ["H", "He", "Hel"]) write(text);
    act(() => void vi.advanceTimersByTime(199));
    expect(compose).not.toHaveBeenCalled();
    act(() => void vi.advanceTimersByTime(1));
    expect(compose).toHaveBeenCalledExactlyOnceWith("Hel");
  } finally {
    vi.useRealTimers();
  }
});

test("a draft survives a reload, and belongs to its conversation", () => {
  vi.useFakeTimers();
  try {
    const { unmount } = render(<Composer chat={chat} example={null} />);
    write("Unfinished");
    act(() => void vi.advanceTimersByTime(200));
    unmount();
    render(<Composer chat={chat} example={null} />);
    expect(field().value).toBe("Unfinished");
    act(() => chat.startNew());
    expect(field().value).toBe("");
  } finally {
    vi.useRealTimers();
  }
});
