/** What is to be kept by the server, one after the other, however long it is away. */

import type { Connection } from "./connection";

export class Writer {
  private last: Promise<void> = Promise.resolve();

  constructor(
    private readonly connection: Connection,
    private readonly onFailure: (error: unknown) => void,
  ) {}

  /** Does `write` after all that were given before; while the server is away, it waits. */
  write(write: () => Promise<void>): Promise<void> {
    this.last = this.last.then(() => this.until(write));
    return this.last;
  }

  private async until(write: () => Promise<void>): Promise<void> {
    for (;;) {
      try {
        return await write();
      } catch (error) {
        if (!this.connection.notice(error)) return this.onFailure(error);
        await this.connection.back();
      }
    }
  }
}
