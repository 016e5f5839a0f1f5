/** The drafts that the server reads while they are typed: the newest takes the place of older ones. */

import { compose, type Readiness, type Turn } from "../api/chat";

export class ReadAhead {
  private asked: AbortController | null = null;
  private tokens = 0;

  /** Has the server read the last of `turns`; null if a newer draft came meanwhile. */
  async read(
    turns: Turn[],
    more: Record<string, unknown>,
    session: string,
  ): Promise<Readiness | null> {
    this.stop();
    const asked = new AbortController();
    this.asked = asked;
    try {
      const readiness = await compose(turns, more, session, asked.signal);
      this.tokens += Math.max(0, readiness.committed - readiness.cached);
      return asked.signal.aborted ? null : readiness;
    } catch (error) {
      if (asked.signal.aborted) return null;
      throw error;
    }
  }

  stop(): void {
    this.asked?.abort();
  }

  /** The tokens that were read since this was asked before. */
  take(): number {
    const { tokens } = this;
    this.tokens = 0;
    return tokens;
  }
}
