/** What the reader chose for this browser. */

import type { Sampling } from "../api/chat";
import { Store } from "./store";

export interface Preferences {
  theme: "system" | "light" | "dark";
  /** Drafts are read by the server while they are typed. */
  readsAhead: boolean;
  /** Enter sends, and Shift+Enter begins a line; or the other way round. */
  enterSends: boolean;
  showsPages: boolean;
  /** Where a conversation outgrows the context, its oldest messages are left out. */
  dropsOldest: boolean;
  sidebarIsOpen: boolean;
  sampling: Sampling;
  /** System prompts to choose from. */
  prompts: readonly string[];
  /** A JSON schema that answers must have, as text; empty for none. */
  schema: string;
  /** Further fields of requests, as the text of a JSON object. */
  more: string;
}

const KEY = "inferno.preferences";

const INITIAL: Preferences = {
  theme: "system",
  readsAhead: true,
  enterSends: true,
  showsPages: false,
  dropsOldest: false,
  sidebarIsOpen: true,
  sampling: {},
  prompts: [
    "Answer in one short paragraph.",
    "You are a careful programmer. Answer with code, and say in two sentences how it works.",
    "Correct the spelling and grammar of what I write, and change nothing else.",
  ],
  schema: "",
  more: "",
};

function stored(): Preferences {
  try {
    return { ...INITIAL, ...(JSON.parse(localStorage.getItem(KEY) ?? "{}") as object) };
  } catch {
    return INITIAL;
  }
}

export const preferences = new Store<Preferences>(stored());

export function prefer(change: Partial<Preferences>): void {
  preferences.set(change);
  localStorage.setItem(KEY, JSON.stringify(preferences.get()));
}

/** The fields that preferences add to a request; an error names what cannot be read. */
export function fieldsOf({
  schema = "",
  more = "",
  dropsOldest = false,
}: Partial<Preferences>): Record<string, unknown> {
  const fields: Record<string, unknown> = dropsOldest ? { truncation: "oldest_turns" } : {};
  if (more.trim()) Object.assign(fields, parsed("Further fields", more));
  if (schema.trim()) {
    fields["response_format"] = {
      type: "json_schema",
      json_schema: { name: "answer", schema: parsed("JSON schema", schema), strict: true },
    };
  }
  return fields;
}

function parsed(name: string, text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`${name}: ${(error as Error).message}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new Error(`${name}: expected a JSON object`);
  }
  return value as Record<string, unknown>;
}
