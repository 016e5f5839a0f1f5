/** Conversations as files, and as text. */

import { exportConversations, fetchConversation, type Conversation } from "../api/conversations";
import { saidIn } from "./thought";
import { threadTo } from "./tree";

/** The branch that was looked at last. */
export function markdownOf({ title, system, messages, leaf }: Conversation): string {
  const parts = [`# ${title || "A conversation"}`];
  if (system) parts.push("**System prompt**", system);
  for (const { role, content } of threadTo(messages, leaf)) {
    parts.push(role === "user" ? "**You**" : "**Model**");
    parts.push(role === "user" ? content : saidIn(content).reply);
  }
  return `${parts.join("\n\n")}\n`;
}

export async function saveAsMarkdown(id: string): Promise<void> {
  const conversation = await fetchConversation(id);
  const text = new Blob([markdownOf(conversation)], { type: "text/markdown" });
  save(text, `${fileName(conversation.title)}.md`);
}

/** One conversation with all its branches, or all of them. */
export async function saveAsJson(id?: string, title = "conversations"): Promise<void> {
  save(await exportConversations(id), `${fileName(title)}.json`);
}

function fileName(title: string): string {
  const name = title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "");
  return name.toLowerCase().slice(0, 60) || "conversation";
}

function save(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  // The browser reads it after this.
  window.setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
