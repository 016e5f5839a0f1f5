/** Is the server there, and does it want a key? */

import { ApiError, ConnectionLost, hasKey } from "../api/client";
import { presence } from "../api/server";
import { Store } from "./store";

const RETRY_MS = 2000;

export interface ConnectionState {
  isLost: boolean;
  /** The server is there, and its model is not yet. */
  isLoading: boolean;
  needsKey: boolean;
  /** One was given, and not accepted. */
  keyIsWrong: boolean;
}

export function isAway({ isLost, isLoading, needsKey }: ConnectionState): boolean {
  return isLost || isLoading || needsKey;
}

export class Connection extends Store<ConnectionState> {
  private waiting: (() => void)[] = [];
  private timer: number | undefined;

  constructor() {
    super({ isLost: false, isLoading: false, needsKey: false, keyIsWrong: false });
  }

  /** Notes what an error says of the connection; tells whether that was all it said. */
  notice(error: unknown): boolean {
    if (error instanceof ConnectionLost) {
      this.set({ isLost: true });
      this.retryLater();
      return true;
    }
    if (error instanceof ApiError && error.code === "loading") {
      this.set({ isLoading: true });
      this.retryLater();
      return true;
    }
    if (error instanceof ApiError && error.status === 401) {
      this.set({ needsKey: true, keyIsWrong: hasKey() });
      return true;
    }
    return false;
  }

  /** Resolves when the server is there again. */
  async back(): Promise<void> {
    if (isAway(this.get())) await new Promise<void>((resolve) => this.waiting.push(resolve));
  }

  async retry(): Promise<void> {
    window.clearTimeout(this.timer);
    this.timer = undefined;
    const found = await presence();
    this.restored({ isLost: found === "away", isLoading: found === "loading" });
    if (found !== "there") this.retryLater();
  }

  keyIsGiven(): void {
    this.restored({ needsKey: false });
  }

  private retryLater(): void {
    this.timer ??= window.setTimeout(() => void this.retry(), RETRY_MS);
  }

  private restored(change: Partial<ConnectionState>): void {
    this.set(change);
    if (isAway(this.get())) return;
    for (const resolve of this.waiting.splice(0)) resolve();
  }
}
