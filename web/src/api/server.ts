/** What is served, and how. */

import { requestJson } from "./client";
import type { Sampling } from "./chat";

export interface Server {
  model: string;
  context: number;
  isa: string;
  threads: number;
  weightFormats: string[];
  weightBytes: number;
  bytesPerToken: number;
  /** What holds where the reader of the page says nothing. */
  defaults: Sampling;
}

interface Props {
  model_alias: string;
  default_generation_settings: { n_ctx: number; params: Sampling };
  isa: string;
  threads: number;
  weight_formats: string[];
  memory: { weights: number; kv_cache_per_token: number };
}

export async function fetchServer(): Promise<Server> {
  const props = await requestJson<Props>("/props");
  return {
    model: props.model_alias,
    context: props.default_generation_settings.n_ctx,
    isa: props.isa,
    threads: props.threads,
    weightFormats: props.weight_formats,
    weightBytes: props.memory.weights,
    bytesPerToken: props.memory.kv_cache_per_token,
    defaults: props.default_generation_settings.params,
  };
}

/** Is the server there, and its model? */
export async function presence(): Promise<"there" | "loading" | "away"> {
  try {
    const { ok, status } = await fetch("/health");
    return ok ? "there" : status === 503 ? "loading" : "away";
  } catch {
    return "away";
  }
}
