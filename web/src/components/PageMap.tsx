import type { Figures } from "../api/chat";
import { useFigures } from "../hooks/useFigures";
import type { Chat } from "../state/chat";
import { useStore } from "../state/store";
import styles from "./PageMap.module.css";

/** Positions of a page of the cache: PAGE_POSITIONS of the engine. */
export const PAGE = 64;

export const KINDS = ["shared", "cached", "typed", "read", "written", "accepted"] as const;
export type Kind = (typeof KINDS)[number];

const MEANING: Record<Kind, string> = {
  shared: "processed for another conversation",
  cached: "processed before",
  typed: "read while you typed",
  read: "read after Enter",
  written: "written",
  accepted: "guessed, and right",
};

export interface Run {
  kind: Kind;
  count: number;
}

/** How each position of a thread came into the cache, in runs; with a draft, `typed` are read. */
export function runsOf(replies: readonly Figures[], typed = 0): Run[] {
  const runs: Run[] = [];
  let known = 0;
  const add = (kind: Kind, count: number) => {
    if (count <= 0) return;
    const last = runs.at(-1);
    if (last?.kind === kind) last.count += count;
    else runs.push({ kind, count });
    known += count;
  };
  for (const figures of replies) {
    // What was there before this conversation had said anything came from another.
    const read = Math.min(figures.readAhead, Math.max(0, figures.cachedTokens - known));
    const before = figures.cachedTokens - read - known;
    add(known ? "cached" : "shared", before);
    add("typed", read);
    add("read", figures.promptTokens - known);
    add("written", figures.generatedTokens - figures.accepted);
    add("accepted", figures.accepted);
  }
  add("typed", typed - known);
  return runs;
}

/** The runs cut into pages. */
export function pagesOf(runs: readonly Run[]): Run[][] {
  const pages: Run[][] = [];
  let room = 0;
  for (const { kind, count } of runs) {
    for (let left = count; left > 0;) {
      if (!room) {
        pages.push([]);
        room = PAGE;
      }
      const taken = Math.min(left, room);
      pages.at(-1)?.push({ kind, count: taken });
      left -= taken;
      room -= taken;
    }
  }
  return pages;
}

/** The pages of the open conversation, as the cache holds them. */
export function PageMap({ chat }: { chat: Chat }) {
  const draft = useStore(chat, (state) => state.readiness?.committed ?? 0);
  const runs = runsOf(useFigures(chat), draft);
  const pages = pagesOf(runs);
  return (
    <aside className={styles.map} aria-label="What is in the cache">
      <div
        className={styles.pages}
        role="img"
        aria-label={`${pages.length} pages of ${PAGE} tokens`}
      >
        {pages.map((page, index) => (
          <span
            key={index}
            className={styles.page}
            title={page.map((run) => `${run.count} ${MEANING[run.kind]}`).join(", ")}
          >
            {page.map((run, part) => (
              <span key={part} data-kind={run.kind} style={{ flexGrow: run.count }} />
            ))}
            <span
              style={{
                flexGrow: PAGE - page.reduce((sum, run) => sum + run.count, 0),
              }}
            />
          </span>
        ))}
      </div>
      <ul>
        {KINDS.filter((kind) => runs.some((run) => run.kind === kind)).map((kind) => (
          <li key={kind}>
            <span data-kind={kind} /> {MEANING[kind]}
          </li>
        ))}
        {runs.length === 0 && <li>Nothing of this conversation is in the cache yet.</li>}
      </ul>
    </aside>
  );
}
