/** A server that answers the page's requests from memory. */

import { vi } from "vitest";

export interface Asked {
  method: string;
  path: string;
  body: Record<string, unknown>;
  headers: Record<string, string>;
}

const PROPS = {
  model_alias: "model",
  default_generation_settings: { n_ctx: 1000, params: {} },
  isa: "scalar",
  threads: 1,
  weight_formats: ["f32"],
  memory: { weights: 1e6, kv_cache_per_token: 1000 },
};

export class FakeServer {
  readonly asked: Asked[] = [];
  isAway = false;
  /** Answers a chat request with the pieces that are written to it. */
  pieces: ReadableStreamDefaultController<Uint8Array> | null = null;
  answer: (asked: Asked) => Response | null = () => null;

  constructor() {
    vi.stubGlobal("fetch", (path: string, init: RequestInit = {}) => this.fetch(path, init));
  }

  to(path: RegExp): Asked[] {
    return this.asked.filter((asked) => path.test(`${asked.method} ${asked.path}`));
  }

  say(chunk: unknown): void {
    this.pieces?.enqueue(
      new TextEncoder().encode(
        `data: ${typeof chunk === "string" ? chunk : JSON.stringify(chunk)}\n\n`,
      ),
    );
  }

  text(content: string, timings?: Record<string, number>): void {
    this.say({ choices: [{ delta: { content }, finish_reason: null }], timings });
  }

  end(finish_reason = "stop"): void {
    this.say({
      choices: [{ delta: {}, finish_reason }],
      timings: {
        cache_n: 18,
        prompt_n: 5,
        predicted_n: 3,
        predicted_ms: 30,
        draft_n: 0,
        draft_n_accepted: 0,
      },
      inferno: { warnings: [] },
    });
    this.say("[DONE]");
    this.pieces?.close();
  }

  private async fetch(path: string, init: RequestInit): Promise<Response> {
    if (this.isAway) throw new TypeError("Failed to fetch");
    const asked: Asked = {
      method: init.method ?? "GET",
      path,
      body: init.body ? (JSON.parse(init.body as string) as Record<string, unknown>) : {},
      headers: { ...(init.headers as Record<string, string>) },
    };
    this.asked.push(asked);
    const own = this.answer(asked);
    if (own) return own;
    if (path === "/v1/chat/completions") {
      const stream = new ReadableStream<Uint8Array>({
        start: (controller) => {
          this.pieces = controller;
          init.signal?.addEventListener("abort", () =>
            controller.error(new DOMException("aborted", "AbortError")),
          );
        },
      });
      return new Response(stream, { headers: { "content-type": "text/event-stream" } });
    }
    if (path === "/props") return json(PROPS);
    if (path === "/v1/compose")
      return json({ total_tokens: 20, committed_tokens: 18, cached_tokens: 4 });
    if (path === "/app/conversations" && asked.method === "GET") return json({ data: [] });
    return json({});
  }
}

export function json(value: unknown, status = 200): Response {
  return new Response(JSON.stringify(value), { status });
}
