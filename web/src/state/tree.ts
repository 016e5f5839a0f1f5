/** A conversation's messages form a tree: an edited or regenerated message is another branch. */

export interface Node {
  id: string;
  parent: string | null;
}

/** Messages by the id of their parent, in the order in which they were made. */
export type Children<M> = ReadonlyMap<string | null, readonly M[]>;

export function childrenOf<M extends Node>(messages: readonly M[]): Children<M> {
  const children = new Map<string | null, M[]>();
  for (const message of messages) {
    const siblings = children.get(message.parent);
    if (siblings) siblings.push(message);
    else children.set(message.parent, [message]);
  }
  return children;
}

/** The messages from the first down to `leaf`. */
export function threadTo<M extends Node>(messages: readonly M[], leaf: string | null): M[] {
  const byId = new Map(messages.map((message) => [message.id, message]));
  const thread: M[] = [];
  const seen = new Set<string>();
  for (let id = leaf; id !== null && !seen.has(id);) {
    seen.add(id);
    const message = byId.get(id);
    if (!message) break;
    thread.push(message);
    id = message.parent;
  }
  return thread.reverse();
}

/** The end of the branch below `id` that was made last. */
export function newestLeaf<M extends Node>(children: Children<M>, id: string): string {
  let leaf = id;
  for (let next = children.get(leaf)?.at(-1); next; next = children.get(leaf)?.at(-1)) {
    leaf = next.id;
  }
  return leaf;
}
