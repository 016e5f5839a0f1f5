/** A reply that is being written: its text so far, in a store of its own, so that a new piece
 * redraws one message and nothing else. */

import { streamChat, type ChatRequest, type Figures } from "../api/chat";
import type { Connection } from "./connection";
import { Store } from "./store";
import { ThoughtWriter } from "./thought";

/** While a reply comes, other tabs hear about this often that the server has kept more of it. */
const TELL_MS = 1000;

export interface ReplyState {
  text: string;
  /** How much of the prompt is processed, from 0 to 1, before there is text. */
  progress: number | null;
  /** Those so far. */
  figures: Figures | null;
}

export class Reply extends Store<ReplyState> {
  readonly controller = new AbortController();
  private readonly stopped = new Promise<void>((resolve) =>
    this.controller.signal.addEventListener("abort", () => resolve()),
  );
  /** Its conversation was deleted: nothing of it is kept. */
  isForgotten = false;
  /** The newest, which the screen may not have drawn yet. */
  figures: Figures | null = null;
  private waiting = "";
  private frame: number | undefined;

  constructor(
    readonly conversation: string,
    readonly message: string,
    text: string,
    /** Tokens of its prompt that were read while it was typed, if it kept them. */
    private readonly readAhead: number,
  ) {
    super({ text, progress: null, figures: null });
  }

  /** Reads the answer to `request`, and returns why it ended; `onNews` is called now and then. While
   * nothing has come, a server that is away is waited for. */
  async read(
    request: ChatRequest,
    connection: Connection,
    onNews: () => void,
  ): Promise<string | null> {
    const begun = this.text;
    for (;;) {
      try {
        return await this.readOnce(request, onNews);
      } catch (error) {
        const isStopped = this.controller.signal.aborted;
        if (isStopped || this.text !== begun || !connection.notice(error)) throw error;
        await Promise.race([connection.back(), this.stopped]);
      }
    }
  }

  private async readOnce(request: ChatRequest, onNews: () => void): Promise<string | null> {
    let finishReason: string | null = null;
    let told = performance.now();
    const text = new ThoughtWriter();
    for await (const event of streamChat(request, this.controller.signal)) {
      if (event.kind === "progress") this.set({ progress: event.processed / event.total });
      else if (event.kind === "thought") this.add(text.thought(event.text));
      else if (event.kind === "text") this.add(text.reply(event.text));
      else {
        if (event.kind === "end") finishReason = event.finishReason;
        // What was read of a draft and then changed is not a part of the prompt.
        const readAhead = Math.min(this.readAhead, event.figures.cachedTokens);
        this.figures = { ...event.figures, readAhead };
      }
      if (performance.now() - told > TELL_MS) {
        told = performance.now();
        onNews();
      }
    }
    return finishReason;
  }

  /** Adds a piece; the screen is drawn once a frame, however many come. */
  add(piece: string): void {
    this.waiting += piece;
    this.frame ??= requestAnimationFrame(() => this.flush());
  }

  flush(): string {
    if (this.frame !== undefined) cancelAnimationFrame(this.frame);
    this.frame = undefined;
    if (this.waiting) {
      const text = this.get().text + this.waiting;
      this.waiting = "";
      this.set({ text, progress: null, figures: this.figures });
    }
    return this.get().text;
  }

  /** The text with what the screen has not drawn yet. */
  get text(): string {
    return this.get().text + this.waiting;
  }

  stop(): void {
    this.controller.abort();
  }

  forget(): void {
    this.isForgotten = true;
    this.stop();
  }
}
