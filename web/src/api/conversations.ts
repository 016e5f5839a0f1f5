/** Conversations as the server keeps them. */

import { request, requestJson } from "./client";
import type { Figures } from "./chat";

export interface Summary {
  id: string;
  title: string;
  isPinned: boolean;
  changedAt: string;
}

export type Status = "complete" | "writing" | "interrupted";

export interface Message {
  id: string;
  parent: string | null;
  role: "user" | "assistant";
  content: string;
  status: Status;
  finishReason: string | null;
  figures: Figures | null;
}

export interface Conversation extends Summary {
  system: string;
  /** The end of the branch that was looked at last. */
  leaf: string | null;
  messages: Message[];
}

interface WireSummary {
  id: string;
  title: string;
  is_pinned: boolean;
  changed_at: string;
}

interface WireMessage {
  id: string;
  parent: string | null;
  role: "user" | "assistant";
  content: string;
  status: Status;
  finish_reason: string | null;
  figures: Figures | null;
}

interface WireConversation extends WireSummary {
  system: string;
  leaf: string | null;
  messages: WireMessage[];
}

const ROOT = "/app/conversations";

const path = (...parts: string[]): string => [ROOT, ...parts.map(encodeURIComponent)].join("/");

function summaryOf(wire: WireSummary): Summary {
  return { id: wire.id, title: wire.title, isPinned: wire.is_pinned, changedAt: wire.changed_at };
}

function conversationOf(wire: WireConversation): Conversation {
  return {
    ...summaryOf(wire),
    system: wire.system,
    leaf: wire.leaf,
    messages: wire.messages.map(({ finish_reason, ...message }) => ({
      ...message,
      finishReason: finish_reason,
    })),
  };
}

export async function listConversations(search = ""): Promise<Summary[]> {
  const query = search ? `?search=${encodeURIComponent(search)}` : "";
  const { data } = await requestJson<{ data: WireSummary[] }>(ROOT + query);
  return data.map(summaryOf);
}

export async function fetchConversation(id: string): Promise<Conversation> {
  return conversationOf(await requestJson<WireConversation>(path(id)));
}

/** Keeps a new conversation, whose id is the page's. */
export async function createConversation(id: string, title: string, system: string): Promise<void> {
  await request(ROOT, { body: { id, title, system } });
}

export interface Change {
  title?: string;
  isPinned?: boolean;
  system?: string;
  leaf?: string;
}

export async function changeConversation(id: string, change: Change): Promise<void> {
  const { isPinned, ...rest } = change;
  const body = isPinned === undefined ? rest : { ...rest, is_pinned: isPinned };
  await request(path(id), { method: "PATCH", body });
}

export async function deleteConversation(id: string): Promise<void> {
  await request(path(id), { method: "DELETE" });
}

/** Keeps a message, or what became of one with the same id. */
export async function keepMessage(conversation: string, message: Message): Promise<void> {
  const { finishReason, ...rest } = message;
  await request(path(conversation, "messages"), {
    body: { ...rest, finish_reason: finishReason },
  });
}

export async function exportConversations(id?: string): Promise<Blob> {
  const query = id === undefined ? "" : `?id=${encodeURIComponent(id)}`;
  return (await request(`${ROOT}/export${query}`)).blob();
}

export async function importConversations(file: File): Promise<number> {
  const body: unknown = JSON.parse(await file.text());
  return (await requestJson<{ imported: number }>(`${ROOT}/import`, { body })).imported;
}
