import { beforeEach, expect, test, vi } from "vitest";
import { setKey } from "../../src/api/client";
import { Chat } from "../../src/state/chat";
import { prefer } from "../../src/state/preferences";
import { threadTo } from "../../src/state/tree";
import { FakeServer, json } from "../server";

let server: FakeServer;
let chat: Chat;

const said = () =>
  threadTo(chat.get().open.messages, chat.get().open.leaf).map(
    ({ role, content }) => `${role}: ${content}`,
  );
const isIdle = () => vi.waitUntil(() => chat.get().replies.size === 0);
const settled = (path: RegExp, count = 1) => vi.waitUntil(() => server.to(path).length >= count);

beforeEach(() => {
  localStorage.clear();
  prefer({ sampling: {}, schema: "", more: "", readsAhead: true, dropsOldest: false });
  server = new FakeServer();
  chat = new Chat();
});

async function exchange(text: string, reply: string): Promise<void> {
  const before = server.to(/POST \/v1\/chat/).length;
  chat.send(text);
  await settled(/POST \/v1\/chat/, before + 1);
  server.text(reply);
  server.end();
  await isIdle();
}

test("a reply is the pieces that came, and is kept with its figures", async () => {
  chat.send("Hello");
  await settled(/POST \/v1\/chat/);
  server.text("Hi ");
  server.text("there");
  server.end();
  await isIdle();
  expect(said()).toEqual(["user: Hello", "assistant: Hi there"]);
  const kept = () => server.to(/POST .*\/messages/).at(-1)?.body;
  await vi.waitUntil(() => kept()?.["status"] === "complete");
  expect(kept()).toMatchObject({
    content: "Hi there",
    finish_reason: "stop",
    figures: { promptTokens: 23, cachedTokens: 18 },
  });
});

test("the request goes before anything is kept", async () => {
  chat.send("Hello");
  await settled(/POST .*\/messages/, 2);
  const paths = server.asked.map((asked) => asked.path);
  expect(paths.indexOf("/v1/chat/completions")).toBeLessThan(paths.indexOf("/app/conversations"));
});

test("a request has the system prompt, the branch that is open and no other", async () => {
  chat.change(chat.get().open.id, { system: "Be brief." });
  await exchange("One", "1");
  const first = chat.get().open.messages[0];
  if (!first) throw new Error("nothing was said");
  chat.edit(first, "Two");
  await settled(/POST \/v1\/chat/, 2);
  expect(server.to(/POST \/v1\/chat/).at(-1)?.body["messages"]).toEqual([
    { role: "system", content: "Be brief." },
    { role: "user", content: "Two" },
  ]);
  server.end();
  await isIdle();
  expect(said()[0]).toBe("user: Two");
  chat.show(first.id);
  expect(said()).toEqual(["user: One", "assistant: 1"]);
});

test("regenerating makes a sibling of the reply", async () => {
  await exchange("Hello", "Hi");
  const reply = chat.get().open.messages[1];
  if (!reply) throw new Error("no reply");
  chat.regenerate(reply);
  await settled(/POST \/v1\/chat/, 2);
  server.text("Hey");
  server.end();
  await isIdle();
  expect(said()).toEqual(["user: Hello", "assistant: Hey"]);
  expect(
    chat.get().open.messages.filter((message) => message.parent === reply.parent),
  ).toHaveLength(2);
});

test("stopping keeps what has come", async () => {
  chat.send("Hello");
  await settled(/POST \/v1\/chat/);
  server.text("Once upon");
  await vi.waitUntil(() => chat.get().replies.get(chat.get().open.id)?.text === "Once upon");
  chat.stop();
  await isIdle();
  const reply = chat.get().open.messages.at(-1);
  expect(reply).toMatchObject({
    content: "Once upon",
    status: "interrupted",
    finishReason: "cancelled",
  });
  expect(chat.connection.get().isLost).toBe(false);
});

test("continuing sends the reply so far, and adds to it", async () => {
  await exchange("Hello", "Once");
  const reply = chat.get().open.messages.at(-1);
  if (!reply) throw new Error("no reply");
  chat.continue(reply);
  await settled(/POST \/v1\/chat/, 2);
  const messages = server.to(/POST \/v1\/chat/).at(-1)?.body["messages"] as unknown[];
  expect(messages.at(-1)).toEqual({ role: "assistant", content: "Once" });
  server.text(" upon");
  server.end();
  await isIdle();
  expect(said()).toEqual(["user: Hello", "assistant: Once upon"]);
});

test("a server that goes away in mid-reply leaves the reply cut off, and it is kept when it is back", async () => {
  chat.send("Hello");
  await settled(/POST .*\/messages/, 2);
  server.text("Once");
  await vi.waitUntil(() => chat.get().replies.get(chat.get().open.id)?.text === "Once");
  server.isAway = true;
  server.pieces?.error(new TypeError("network error"));
  await isIdle();
  expect(chat.connection.get().isLost).toBe(true);
  expect(chat.get().open.messages.at(-1)).toMatchObject({ content: "Once", status: "interrupted" });
  server.isAway = false;
  await chat.connection.retry();
  await vi.waitUntil(() => server.to(/POST .*\/messages/).at(-1)?.body["status"] === "interrupted");
  expect(chat.connection.get().isLost).toBe(false);
});

test("a stream that ends without its end is cut off, not complete", async () => {
  chat.send("Hello");
  await settled(/POST \/v1\/chat/);
  server.text("Once");
  server.pieces?.close();
  await isIdle();
  expect(chat.get().open.messages.at(-1)?.status).toBe("interrupted");
});

test("an error of the server's is shown, in its words", async () => {
  server.answer = ({ path }) =>
    path === "/v1/chat/completions"
      ? json({ error: { message: "The prompt is too long", code: "too_many" } }, 400)
      : null;
  chat.send("Hello");
  await isIdle();
  expect(chat.get().failure).toBe("The prompt is too long");
});

test("a key that is wanted is asked for", async () => {
  server.answer = () => json({ error: { message: "key", code: "invalid_api_key" } }, 401);
  await chat.start();
  expect(chat.connection.get().needsKey).toBe(true);
  expect(chat.get().failure).toBeNull();
});

test("a draft is composed after what was said, and sending gives it up", async () => {
  await exchange("Hello", "Hi");
  await chat.compose("How are");
  expect(server.to(/compose/).at(-1)?.body["messages"]).toEqual([
    { role: "user", content: "Hello" },
    { role: "assistant", content: "Hi" },
    { role: "user", content: "How are" },
  ]);
  expect(chat.get().readiness).toEqual({ total: 20, committed: 18, cached: 4 });
  await exchange("How are you?", "Fine");
  expect(chat.get().readiness).toBeNull();
  expect(chat.get().open.messages.at(-1)?.figures?.readAhead).toBe(14);
});

test("both requests of a draft name one session", async () => {
  await chat.compose("Hello");
  await exchange("Hello", "Hi");
  const [composed, asked] = [server.to(/compose/)[0], server.to(/POST \/v1\/chat/)[0]];
  expect(composed?.headers["x-session-id"]).toBe(asked?.headers["x-session-id"]);
});

test("nothing is composed when reading ahead is off", async () => {
  prefer({ readsAhead: false });
  await chat.compose("Hello");
  expect(server.to(/compose/)).toHaveLength(0);
});

test("a reply goes on while another conversation is open", async () => {
  chat.send("Hello");
  await settled(/POST \/v1\/chat/);
  const { id } = chat.get().open;
  chat.startNew();
  expect(chat.get().open.messages).toEqual([]);
  server.text("Hi");
  server.end();
  await isIdle();
  expect(chat.get().open.messages).toEqual([]);
  const kept = server.to(/POST .*\/messages/).filter((asked) => asked.path.includes(id));
  await vi.waitUntil(() => server.to(/POST .*\/messages/).at(-1)?.body["content"] === "Hi");
  expect(kept.length).toBeGreaterThan(0);
});

test("a conversation that is deleted in mid-reply takes the reply with it", async () => {
  chat.send("Hello");
  await settled(/POST \/v1\/chat/);
  await settled(/POST .*\/messages/, 2);
  chat.remove(chat.get().open.id);
  await isIdle();
  await settled(/DELETE/);
  expect(server.to(/POST .*\/messages/)).toHaveLength(2);
  expect(chat.get().failure).toBeNull();
});

test("a conversation that is gone is left for a new one, and that is said", async () => {
  server.answer = ({ path }) => (path.endsWith("/gone") ? json({ error: {} }, 404) : null);
  await chat.openConversation("gone");
  expect(chat.get().isKept).toBe(false);
  expect(chat.get().failure).toMatch("not there any more");
});

test("a thought is kept in front of its reply, and is not said again", async () => {
  chat.send("Hello");
  await settled(/POST \/v1\/chat/);
  server.say({ choices: [{ delta: { reasoning_content: "Greet " }, finish_reason: null }] });
  server.say({ choices: [{ delta: { reasoning_content: "them." }, finish_reason: null }] });
  server.text("Hi");
  server.end();
  await isIdle();
  expect(said().at(-1)).toBe("assistant: <think>\nGreet them.\n</think>\n\nHi");
  await exchange("Again", "Hi");
  expect(server.to(/POST \/v1\/chat/).at(-1)?.body["messages"]).toEqual([
    { role: "user", content: "Hello" },
    { role: "assistant", content: "Hi" },
    { role: "user", content: "Again" },
  ]);
});

test("a reply that is stopped has the figures that came", async () => {
  chat.send("Hello");
  await settled(/POST \/v1\/chat/);
  server.text("Hi", { cache_n: 2, prompt_n: 8, predicted_n: 1, predicted_ms: 4 });
  await vi.waitUntil(() => chat.get().replies.get(chat.get().open.id)?.text === "Hi");
  chat.stop();
  await isIdle();
  expect(chat.get().open.messages.at(-1)).toMatchObject({
    finishReason: "cancelled",
    figures: { promptTokens: 10, generatedTokens: 1 },
  });
});

test("with settings that cannot be read nothing is said", () => {
  prefer({ schema: "{" });
  expect(chat.send("Hello")).toBe(false);
  expect(chat.get().open.messages).toEqual([]);
  expect(chat.get().failure).toMatch("JSON schema");
});

test("a server that keeps no conversations is talked to all the same", async () => {
  server.answer = ({ path }) =>
    path.startsWith("/app") ? json({ error: { message: "keeps none", code: "" } }, 501) : null;
  await chat.start();
  await exchange("Hello", "Hi");
  expect(said()).toEqual(["user: Hello", "assistant: Hi"]);
  expect(chat.get()).toMatchObject({ serverKeeps: false, failure: null });
  expect(server.to(/POST \/app/)).toHaveLength(0);
});

test("a model that is being loaded is waited for", async () => {
  vi.useFakeTimers();
  try {
    server.answer = () => json({ error: { message: "Loading model", code: "loading" } }, 503);
    await chat.start();
    expect(chat.connection.get()).toMatchObject({ isLoading: true, isLost: false });
    expect(chat.get().failure).toBeNull();
    server.answer = () => null;
    await vi.advanceTimersByTimeAsync(2000);
    expect(chat.connection.get().isLoading).toBe(false);
  } finally {
    vi.useRealTimers();
  }
});

test("a key that is not accepted is asked for anew, and called wrong", async () => {
  server.answer = () => json({ error: { message: "key", code: "invalid_api_key" } }, 401);
  await chat.start();
  expect(chat.connection.get().keyIsWrong).toBe(false);
  setKey("wrong");
  chat.connection.keyIsGiven();
  await chat.start();
  expect(chat.connection.get()).toMatchObject({ needsKey: true, keyIsWrong: true });
});

test("what does not fit into the context is said with what to do about it on the page", async () => {
  const error = { message: "9 too many\nhint: fields", code: "context_length_exceeded" };
  server.answer = ({ path }) => (path.startsWith("/v1/chat") ? json({ error }, 400) : null);
  chat.send("Hello");
  await isIdle();
  expect(chat.get().failure).toMatch(/^9 too many\. Shorten it.*settings/);
});

test("a message that the server was not there for is answered when it is", async () => {
  vi.useFakeTimers();
  try {
    server.isAway = true;
    chat.send("Hello");
    await vi.advanceTimersByTimeAsync(500);
    expect(chat.get().replies.size).toBe(1);
    server.isAway = false;
    await vi.advanceTimersByTimeAsync(2000);
    server.text("Hi");
    server.end();
    await vi.advanceTimersByTimeAsync(100);
    expect(said()).toEqual(["user: Hello", "assistant: Hi"]);
  } finally {
    vi.useRealTimers();
  }
});

test("waiting for a server that is away can be stopped", async () => {
  server.isAway = true;
  chat.send("Hello");
  await vi.waitUntil(() => chat.connection.get().isLost);
  chat.stop();
  await isIdle();
  expect(chat.get().open.messages.at(-1)?.finishReason).toBe("cancelled");
});

test("a reply that another tab has written is looked at until it is over", async () => {
  vi.useFakeTimers();
  try {
    let status = "writing";
    const message = { id: "m", parent: null, role: "assistant", content: "", figures: null };
    server.answer = ({ path }) =>
      path.endsWith("/c") ? json({ id: "c", leaf: "m", messages: [{ ...message, status }] }) : null;
    await chat.openConversation("c");
    status = "interrupted";
    await vi.advanceTimersByTimeAsync(1000);
    expect(chat.get().open.messages[0]?.status).toBe("interrupted");
    const { length } = server.asked;
    await vi.advanceTimersByTimeAsync(5000);
    expect(server.asked).toHaveLength(length);
  } finally {
    vi.useRealTimers();
  }
});
