/** The chat endpoint as a stream of events, and the one that reads drafts ahead. */

import { createParser } from "eventsource-parser";
import { ApiError, ConnectionLost, request, requestJson } from "./client";

export interface Turn {
  role: "system" | "user" | "assistant";
  content: string;
}

/** Names are those of the request's fields. What is absent is the server's to choose. */
export interface Sampling {
  temperature?: number;
  top_k?: number;
  top_p?: number;
  min_p?: number;
  repetition_penalty?: number;
  presence_penalty?: number;
  frequency_penalty?: number;
  max_tokens?: number;
  seed?: number;
}

/** What a reply took. */
export interface Figures {
  promptTokens: number;
  cachedTokens: number;
  generatedTokens: number;
  drafted: number;
  accepted: number;
  /** Seconds from the request to the first piece, as the page saw it. */
  firstPiece: number;
  decodeSeconds: number;
  /** Tokens that were processed while the message was typed. */
  readAhead: number;
  warnings: string[];
}

export type ChatEvent =
  | { kind: "progress"; processed: number; total: number }
  | { kind: "thought"; text: string }
  | { kind: "text"; text: string }
  /** Those so far. */
  | { kind: "figures"; figures: Figures }
  | { kind: "end"; finishReason: string; figures: Figures };

export interface ChatRequest {
  messages: Turn[];
  sampling: Sampling;
  /** Any further fields of the request. */
  more?: Record<string, unknown>;
  session: string;
  /** Where the server keeps the reply, also when this page is gone: a message of the session. */
  message: string;
}

interface Timings {
  cache_n: number;
  prompt_n: number;
  predicted_n: number;
  predicted_ms: number;
  draft_n: number;
  draft_n_accepted: number;
}

interface Chunk {
  error?: { message: string; code?: unknown };
  prompt_progress?: { processed: number; total: number };
  choices?: {
    delta: { content?: string | null; reasoning_content?: string | null };
    finish_reason: string | null;
  }[];
  timings?: Timings;
  inferno?: { warnings: string[] };
}

/** Yields what comes of a reply; it is cut off by `signal`. */
export async function* streamChat(
  { messages, sampling, more, session, message }: ChatRequest,
  signal: AbortSignal,
): AsyncGenerator<ChatEvent, void, undefined> {
  const began = performance.now();
  const response = await request("/v1/chat/completions", {
    body: {
      ...more,
      ...sampling,
      messages,
      stream: true,
      return_progress: true,
      timings_per_token: true,
    },
    headers: { "x-session-id": session, "x-message-id": `${session}/${message}` },
    signal,
  });
  let firstPiece: number | undefined;
  let isOver = false;
  for await (const data of eventsOf(response, signal)) {
    if (data === "[DONE]") {
      isOver = true;
      continue;
    }
    const chunk = JSON.parse(data) as Chunk;
    if (chunk.error) throw new ApiError(chunk.error.message, 500, String(chunk.error.code ?? ""));
    if (chunk.prompt_progress) {
      const { processed, total } = chunk.prompt_progress;
      yield { kind: "progress", processed, total };
    }
    const choice = chunk.choices?.[0];
    if (choice?.delta.reasoning_content) {
      firstPiece ??= performance.now();
      yield { kind: "thought", text: choice.delta.reasoning_content };
    }
    if (choice?.delta.content) {
      firstPiece ??= performance.now();
      yield { kind: "text", text: choice.delta.content };
    }
    if (!chunk.timings) continue;
    const seconds = ((firstPiece ?? performance.now()) - began) / 1e3;
    const figures = figuresOf(chunk.timings, seconds, chunk.inferno?.warnings ?? []);
    if (choice?.finish_reason) yield { kind: "end", finishReason: choice.finish_reason, figures };
    else yield { kind: "figures", figures };
  }
  if (!isOver) throw new ConnectionLost();
}

function figuresOf(timings: Timings, firstPiece: number, warnings: string[]): Figures {
  return {
    promptTokens: timings.cache_n + timings.prompt_n,
    cachedTokens: timings.cache_n,
    generatedTokens: timings.predicted_n,
    drafted: timings.draft_n,
    accepted: timings.draft_n_accepted,
    firstPiece,
    decodeSeconds: timings.predicted_ms / 1e3,
    readAhead: 0,
    warnings,
  };
}

/** Yields the data of server-sent events. */
async function* eventsOf(
  response: Response,
  signal: AbortSignal,
): AsyncGenerator<string, void, undefined> {
  if (!response.body) return;
  const waiting: string[] = [];
  const parser = createParser({ onEvent: (event) => void waiting.push(event.data) });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      parser.feed(value);
      yield* waiting.splice(0);
    }
  } catch (error) {
    if (signal.aborted || error instanceof ApiError) throw error;
    throw new ConnectionLost();
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

export interface Readiness {
  total: number;
  /** Of those, how many are processed: they take no time when the message is sent. */
  committed: number;
  /** And how many had been before. */
  cached: number;
}

/** Has the server read a draft, the last of `messages`, while it is being typed. */
export async function compose(
  messages: Turn[],
  more: Record<string, unknown>,
  session: string,
  signal: AbortSignal,
): Promise<Readiness> {
  const answer = await requestJson<{
    total_tokens: number;
    committed_tokens: number;
    cached_tokens: number;
  }>("/v1/compose", {
    body: { ...more, messages },
    headers: { "x-session-id": session },
    signal,
  });
  return {
    total: answer.total_tokens,
    committed: answer.committed_tokens,
    cached: answer.cached_tokens,
  };
}
