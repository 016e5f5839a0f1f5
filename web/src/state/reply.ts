/** A reply that is being written: its text so far, in a store of its own, so that a new piece
 * redraws one message and nothing else. */

import type { Figures } from "../api/chat";
import { Store } from "./store";

export interface ReplyState {
  text: string;
  /** How much of the prompt is processed, from 0 to 1, before there is text. */
  progress: number | null;
  /** Those so far. */
  figures: Figures | null;
}

export class Reply extends Store<ReplyState> {
  readonly controller = new AbortController();
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
  ) {
    super({ text, progress: null, figures: null });
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
