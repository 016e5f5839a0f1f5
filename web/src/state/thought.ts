/** What a model thinks before it replies: it is kept in front of the reply, between two tags. */

export const OPEN = "<think>";
export const CLOSE = "</think>";

export interface Said {
  /** Absent if there is none. */
  thought: string | null;
  /** The model is still thinking. */
  isThinking: boolean;
  reply: string;
}

export function saidIn(content: string): Said {
  const text = content.trimStart();
  if (!text.startsWith(OPEN)) return { thought: null, isThinking: false, reply: content };
  const end = text.indexOf(CLOSE);
  if (end < 0) return { thought: text.slice(OPEN.length).trim(), isThinking: true, reply: "" };
  return {
    thought: text.slice(OPEN.length, end).trim() || null,
    isThinking: false,
    reply: text.slice(end + CLOSE.length).trimStart(),
  };
}

/** Joins thoughts and pieces of a reply, as they come, into one text. */
export class ThoughtWriter {
  private isThinking = false;

  thought(piece: string): string {
    const begin = this.isThinking ? "" : `${OPEN}\n`;
    this.isThinking = true;
    return begin + piece;
  }

  reply(piece: string): string {
    const end = this.isThinking ? `\n${CLOSE}\n\n` : "";
    this.isThinking = false;
    return end + piece;
  }
}
