/** How long ago conversations changed, in the words of a list's headings. */

import type { Summary } from "../api/conversations";

const DAY_MS = 86_400_000;

function ageOf(changedAt: string, now: Date): string {
  const changed = new Date(changedAt || now);
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  if (!(changed.getTime() < midnight)) return "Today";
  if (changed.getTime() >= midnight - DAY_MS) return "Yesterday";
  if (changed.getTime() >= midnight - 6 * DAY_MS) return "This week";
  return changed.toLocaleDateString(undefined, { month: "long", year: "numeric" });
}

/** The conversations under headings, in the order in which they come; pinned ones first. */
export function grouped(summaries: readonly Summary[], now: Date): [string, Summary[]][] {
  const groups = new Map<string, Summary[]>();
  const pinnedFirst = [...summaries].sort((a, b) => Number(b.isPinned) - Number(a.isPinned));
  for (const summary of pinnedFirst) {
    const heading = summary.isPinned ? "Pinned" : ageOf(summary.changedAt, now);
    groups.set(heading, [...(groups.get(heading) ?? []), summary]);
  }
  return [...groups];
}
