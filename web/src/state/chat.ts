/** The conversations, the one that is open, and the replies that are being written.
 *
 * What the reader does shows at once; the server keeps it afterwards, in the same order. */

import type { ChatRequest, Readiness, Turn } from "../api/chat";
import {
  changeConversation,
  createConversation,
  deleteConversation,
  fetchConversation,
  importConversations,
  keepMessage,
  listConversations,
  type Change,
  type Conversation,
  type Message,
  type Summary,
} from "../api/conversations";
import { fetchServer, type Server } from "../api/server";
import { ApiError } from "../api/client";
import { Connection } from "./connection";
import { keepDraft } from "./drafts";
import { newId } from "./ids";
import { fieldsOf, preferences } from "./preferences";
import { ReadAhead } from "./readAhead";
import { Reply } from "./reply";
import { Store } from "./store";
import { childrenOf, newestLeaf, threadTo } from "./tree";
import { saidIn } from "./thought";
import { Writer } from "./writer";

/** A reply that comes to another tab is looked at this often. */
const LOOK_MS = 1000;
const TITLE_LENGTH = 60;

export interface ChatState {
  server: Server | null;
  summaries: readonly Summary[];
  search: string;
  /** A conversation that nobody has said anything in is not kept yet. */
  open: Conversation;
  isKept: boolean;
  /** Some servers keep no conversations at all. */
  serverKeeps: boolean;
  replies: ReadonlyMap<string, Reply>;
  /** How much of the draft the server has read. */
  readiness: Readiness | null;
  failure: string | null;
}

function newConversation(): Conversation {
  return {
    id: newId(),
    title: "",
    isPinned: false,
    changedAt: "",
    system: "",
    leaf: null,
    messages: [],
  };
}

export class Chat extends Store<ChatState> {
  readonly connection = new Connection();
  private readonly writer = new Writer(this.connection, (error) => this.fail(error));
  private readonly tabs = new BroadcastChannel("inferno.conversations");
  private watching: number | undefined;
  private readonly readAhead = new ReadAhead();
  /** Opening may be overtaken by opening another. */
  private opening = 0;

  constructor() {
    super({
      server: null,
      summaries: [],
      search: "",
      open: newConversation(),
      isKept: false,
      serverKeeps: true,
      replies: new Map(),
      readiness: null,
      failure: null,
    });
    this.tabs.onmessage = () => void this.refresh();
  }

  /** Asks what is served, and what was said. */
  async start(): Promise<void> {
    await this.attempt(async () => {
      this.set({ server: await fetchServer() });
      await this.list();
    });
  }

  // ---- conversations ----------------------------------------------------------------------------

  startNew(): void {
    this.opening += 1;
    this.forgetDraft();
    this.set({ open: newConversation(), isKept: false, failure: null });
  }

  async openConversation(id: string): Promise<void> {
    if (id === this.get().open.id) return;
    const turn = ++this.opening;
    await this.attempt(async () => {
      const open = await this.fetchOrLeave(id, () => turn === this.opening);
      if (!open) return;
      this.forgetDraft();
      this.set({ open, isKept: true, failure: null });
      this.watch();
    });
  }

  /** Looks again soon while another tab, maybe of another browser, has a reply written here. */
  private watch(): void {
    window.clearTimeout(this.watching);
    const { open, replies } = this.get();
    if (replies.has(open.id) || !open.messages.some(({ status }) => status === "writing")) return;
    this.watching = window.setTimeout(() => void this.refresh(), LOOK_MS);
  }

  /** The conversation, if it is wanted when it comes; one that is gone is left for a new one. */
  private async fetchOrLeave(id: string, isWanted: () => boolean): Promise<Conversation | null> {
    try {
      const found = await fetchConversation(id);
      return isWanted() ? found : null;
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 404)) throw error;
      if (isWanted()) {
        this.startNew();
        this.fail("This conversation is not there any more.");
      }
      return null;
    }
  }

  async search(search: string): Promise<void> {
    this.set({ search });
    await this.attempt(() => this.list());
  }

  change(id: string, change: Change): void {
    const { open, summaries, isKept } = this.get();
    if (id === open.id) this.set({ open: { ...open, ...change } });
    this.set({ summaries: summaries.map((s) => (s.id === id ? { ...s, ...change } : s)) });
    if (id === open.id && !isKept) return;
    void this.write(() => changeConversation(id, change));
  }

  remove(id: string): void {
    this.get().replies.get(id)?.forget();
    keepDraft(id, "");
    this.set({ summaries: this.get().summaries.filter((summary) => summary.id !== id) });
    if (id === this.get().open.id) this.startNew();
    void this.write(() => deleteConversation(id));
  }

  async import(file: File): Promise<void> {
    await this.attempt(async () => {
      await importConversations(file);
      await this.list();
      this.tellTabs();
    });
  }

  // ---- messages ---------------------------------------------------------------------------------

  /** Says `text` at the end of the branch that is open; false if it cannot be said now. */
  send(text: string): boolean {
    return this.say(text, this.get().open.leaf);
  }

  /** Says something else instead of a message of the reader's, in a new branch. */
  edit(message: Message, text: string): void {
    this.say(text, message.parent);
  }

  /** Has another reply written, in a new branch. */
  regenerate(message: Message): void {
    this.answer(message.parent);
  }

  /** Has a reply that ended too early gone on with. */
  continue(message: Message): void {
    this.writeReply({ ...message, status: "writing" });
  }

  stop(): void {
    this.get().replies.get(this.get().open.id)?.stop();
  }

  /** Shows the branch that `id` is in. */
  show(id: string): void {
    const { open } = this.get();
    const leaf = newestLeaf(childrenOf(open.messages), id);
    this.change(open.id, { leaf });
  }

  private say(text: string, parent: string | null): boolean {
    if (this.get().replies.has(this.get().open.id) || !this.fields()) return false;
    this.readAhead.stop();
    if (!this.get().isKept) this.keepOpen(text);
    const message: Message = {
      id: newId(),
      parent,
      role: "user",
      content: text,
      status: "complete",
      finishReason: null,
      figures: null,
    };
    this.put(this.get().open.id, message);
    const { id } = this.get().open;
    this.answer(message.id, () => void this.write(() => keepMessage(id, message)));
    return true;
  }

  /** The further fields of requests; null, and a failure, if they cannot be read. */
  private fields(): Record<string, unknown> | null {
    try {
      return fieldsOf(preferences.get());
    } catch (error) {
      this.fail(error);
      return null;
    }
  }

  private keepOpen(text: string): void {
    const { open } = this.get();
    const title = open.title || titleOf(text);
    const changed = { ...open, title };
    this.set({ open: changed, isKept: true, summaries: [changed, ...this.get().summaries] });
    void this.write(() => createConversation(open.id, title, open.system));
  }

  private answer(parent: string | null, meanwhile?: () => void): void {
    this.writeReply(
      {
        id: newId(),
        parent,
        role: "assistant",
        content: "",
        status: "writing",
        finishReason: null,
        figures: null,
      },
      meanwhile,
    );
  }

  private writeReply(message: Message, meanwhile?: () => void): void {
    const { open, replies } = this.get();
    const more = this.fields();
    if (replies.has(open.id) || !more) return;
    const reply = new Reply(open.id, message.id, message.content, this.readAhead.take());
    this.put(open.id, message);
    this.set({ replies: new Map(replies).set(open.id, reply), readiness: null, failure: null });
    const messages = turnsOf(open, threadTo(this.get().open.messages, message.parent));
    if (message.content) messages.push({ role: "assistant", content: message.content });
    const { sampling } = preferences.get();
    const request = { messages, sampling, more, session: open.id, message: message.id };
    void this.follow(request, reply, message);
    // The request is on its way; keeping what was said must not hold it up.
    meanwhile?.();
    void this.write(() => keepMessage(open.id, message));
  }

  private async follow(request: ChatRequest, reply: Reply, message: Message): Promise<void> {
    let end: Pick<Message, "status" | "finishReason">;
    try {
      const finishReason = await reply.read(request, this.connection, () => this.tellTabs());
      end = { status: "complete", finishReason };
    } catch (error) {
      const isStopped = reply.controller.signal.aborted;
      if (!isStopped && !this.connection.notice(error)) this.fail(error);
      end = { status: "interrupted", finishReason: isStopped ? "cancelled" : null };
    }
    const content = reply.flush();
    const { figures } = reply;
    const finished: Message = { ...message, content, ...end, figures };
    const replies = new Map(this.get().replies);
    replies.delete(reply.conversation);
    this.put(reply.conversation, finished);
    this.set({ replies });
    if (reply.isForgotten) return;
    await this.write(() => keepMessage(reply.conversation, finished));
    // Whoever came back to the conversation meanwhile has the message as it was.
    const { open } = this.get();
    const shown = open.messages.find((other) => other.id === finished.id);
    if (shown?.status === "writing" && !this.get().replies.has(open.id))
      this.put(open.id, finished);
  }

  /** Puts a message where it belongs, if its conversation is open, and shows its branch. */
  private put(conversation: string, message: Message): void {
    const { open } = this.get();
    if (open.id !== conversation) return;
    const isNew = !open.messages.some((other) => other.id === message.id);
    const messages = isNew
      ? [...open.messages, message]
      : open.messages.map((other) => (other.id === message.id ? message : other));
    this.set({ open: { ...open, messages, leaf: isNew ? message.id : open.leaf } });
  }

  // ---- drafts -----------------------------------------------------------------------------------

  /** Has the server read what is being typed; the newest draft takes the place of older ones. */
  async compose(draft: string): Promise<void> {
    this.readAhead.stop();
    const { open, replies } = this.get();
    if (!draft.trim() || replies.has(open.id) || !preferences.get().readsAhead) {
      this.set({ readiness: null });
      return;
    }
    const turns = turnsOf(open, threadTo(open.messages, open.leaf));
    turns.push({ role: "user", content: draft });
    try {
      const more = fieldsOf(preferences.get());
      const readiness = await this.readAhead.read(turns, more, open.id);
      if (readiness) this.set({ readiness });
    } catch (error) {
      // What goes wrong with a draft is said when it is sent.
      this.set({ readiness: null });
      this.connection.notice(error);
    }
  }

  private forgetDraft(): void {
    this.readAhead.stop();
    this.readAhead.take();
    this.set({ readiness: null });
  }

  // ---- the server -------------------------------------------------------------------------------

  /** Takes over what other tabs have changed. */
  async refresh(): Promise<void> {
    const { open, replies, isKept } = this.get();
    await this.attempt(async () => {
      await this.list();
      if (!isKept || replies.has(open.id)) return;
      const isOpen = () => this.get().open.id === open.id && !this.get().replies.has(open.id);
      const fresh = await this.fetchOrLeave(open.id, isOpen);
      if (!fresh) return;
      // The branch that is looked at here stays; what was said at its end is shown.
      const { leaf } = this.get().open;
      const isThere = fresh.messages.some((message) => message.id === leaf);
      const end =
        leaf !== null && isThere ? newestLeaf(childrenOf(fresh.messages), leaf) : fresh.leaf;
      this.set({ open: { ...fresh, leaf: end } });
      this.watch();
    });
  }

  dismiss(): void {
    this.set({ failure: null });
  }

  private async list(): Promise<void> {
    const { search } = this.get();
    const summaries = await listConversations(search);
    if (search === this.get().search) this.set({ summaries });
  }

  private async write(write: () => Promise<void>): Promise<void> {
    if (!this.get().serverKeeps) return;
    await this.writer.write(write);
    this.tellTabs();
  }

  private tellTabs(): void {
    this.tabs.postMessage(null);
  }

  async attempt(action: () => Promise<void>): Promise<void> {
    try {
      await action();
    } catch (error) {
      if (!this.connection.notice(error)) this.fail(error);
    }
  }

  fail(error: unknown): void {
    if (error instanceof ApiError && error.status === 501) {
      this.set({ serverKeeps: false });
      return;
    }
    let failure = error instanceof Error ? error.message : String(error);
    if (error instanceof ApiError && error.code === "context_length_exceeded") {
      // The server's hint is for who writes requests.
      const [what] = failure.split("\nhint:", 1);
      failure = `${what}. Shorten it, or have the oldest messages left out: a switch in the settings.`;
    }
    this.set({ failure });
  }
}

function turnsOf(conversation: Conversation, thread: readonly Message[]): Turn[] {
  const turns: Turn[] = conversation.system
    ? [{ role: "system", content: conversation.system }]
    : [];
  // What was thought before an earlier reply is no part of what was said.
  for (const { role, content } of thread)
    turns.push({ role, content: role === "assistant" ? saidIn(content).reply : content });
  return turns;
}

export function titleOf(text: string): string {
  const line = text.trim().split("\n", 1)[0] ?? "";
  const characters = [...line];
  return characters.length > TITLE_LENGTH
    ? `${characters.slice(0, TITLE_LENGTH - 1).join("")}…`
    : line;
}
