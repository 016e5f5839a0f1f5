/** Is the server there, and does it want a key? */

import { ApiError, ConnectionLost } from "../api/client";
import { isThere } from "../api/server";
import { Store } from "./store";

const RETRY_MS = 2000;

export interface ConnectionState {
  isLost: boolean;
  needsKey: boolean;
}

export class Connection extends Store<ConnectionState> {
  private waiting: (() => void)[] = [];
  private timer: number | undefined;

  constructor() {
    super({ isLost: false, needsKey: false });
  }

  /** Notes what an error says of the connection; tells whether that was all it said. */
  notice(error: unknown): boolean {
    if (error instanceof ConnectionLost) {
      this.set({ isLost: true });
      this.timer ??= window.setTimeout(() => void this.retry(), RETRY_MS);
      return true;
    }
    if (error instanceof ApiError && error.status === 401) {
      this.set({ needsKey: true });
      return true;
    }
    return false;
  }

  /** Resolves when the server is there again. */
  async back(): Promise<void> {
    if (this.get().isLost || this.get().needsKey) {
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    }
  }

  async retry(): Promise<void> {
    window.clearTimeout(this.timer);
    this.timer = undefined;
    if (await isThere()) this.restored({ isLost: false });
    else this.timer = window.setTimeout(() => void this.retry(), RETRY_MS);
  }

  keyIsGiven(): void {
    this.restored({ needsKey: false });
  }

  private restored(change: Partial<ConnectionState>): void {
    this.set(change);
    const { isLost, needsKey } = this.get();
    if (isLost || needsKey) return;
    for (const resolve of this.waiting.splice(0)) resolve();
  }
}
