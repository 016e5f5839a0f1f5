import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Composer } from "../../src/components/Composer";
import { Chat } from "../../src/state/chat";
import { prefer } from "../../src/state/preferences";
import { FakeServer, json } from "../server";

let chat: Chat;
let server: FakeServer;

beforeEach(() => {
  localStorage.clear();
  prefer({ enterSends: true, readsAhead: true, schema: "" });
  server = new FakeServer();
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

test("a draft survives a reload, before its conversation has begun too", () => {
  const { unmount } = render(<Composer chat={chat} example={null} />);
  write("Unfinished");
  unmount();
  chat = new Chat();
  render(<Composer chat={chat} example={null} />);
  expect(field().value).toBe("Unfinished");
});

test("a draft belongs to its conversation, however fast another is opened", async () => {
  const messages: unknown[] = [];
  server.answer = ({ path }) =>
    path.includes("/conversations/") ? json({ id: path.slice(-1), title: "", messages }) : null;
  render(<Composer chat={chat} example={null} />);
  await act(() => chat.openConversation("a"));
  write("Unfinished");
  await act(() => chat.openConversation("b"));
  expect(field().value).toBe("");
  await act(() => chat.openConversation("a"));
  expect(field().value).toBe("Unfinished");
});

test("a draft that is written while a reply comes is read when it is over", async () => {
  vi.useFakeTimers();
  try {
    const compose = vi.spyOn(chat, "compose").mockResolvedValue();
    render(<Composer chat={chat} example={null} />);
    act(() => void chat.send("Hello"));
    write("And then?");
    await act(() => vi.advanceTimersByTimeAsync(500));
    expect(compose).not.toHaveBeenCalled();
    await act(async () => {
      server.end();
      await vi.advanceTimersByTimeAsync(500);
    });
    expect(compose).toHaveBeenCalledWith("And then?");
  } finally {
    vi.useRealTimers();
  }
});

test("a message that cannot be sent stays where it was written", () => {
  prefer({ schema: "{" });
  render(<Composer chat={chat} example={null} />);
  write("Hello");
  fireEvent.keyDown(field(), { key: "Enter" });
  expect(field().value).toBe("Hello");
});

test("a file of text goes into the message under its name, and another is refused", async () => {
  render(<Composer chat={chat} example={null} />);
  write("Explain:");
  const add = (content: BlobPart, name: string) =>
    fireEvent.change(screen.getByLabelText("Files of text"), {
      target: { files: [new File([content], name)] },
    });
  add("print('```')\n", "hello.py");
  await vi.waitUntil(() => field().value.includes("hello.py"));
  expect(field().value).toBe("Explain:\n\nhello.py:\n````py\nprint('```')\n````\n");
  add(new Uint8Array([0xff, 0xfe, 0]), "picture.png");
  await vi.waitUntil(() => chat.get().failure);
  expect(chat.get().failure).toBe("picture.png: expected a file of text");
});
