/** A value that components can subscribe to. */

import { useSyncExternalStore } from "react";

export class Store<State> {
  private readonly listeners = new Set<() => void>();

  constructor(private current: State) {}

  readonly get = (): State => this.current;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  set(change: Partial<State>): void {
    this.current = { ...this.current, ...change };
    for (const listener of [...this.listeners]) listener();
  }
}

/** Returns what `select` takes of the state; it must give the same object for the same state. */
export function useStore<State, Part>(store: Store<State>, select: (state: State) => Part): Part {
  return useSyncExternalStore(store.subscribe, () => select(store.get()));
}
