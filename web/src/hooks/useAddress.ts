import { useCallback, useSyncExternalStore } from "react";

const PREFIX = "#/c/";

function subscribe(listener: () => void): () => void {
  window.addEventListener("hashchange", listener);
  return () => window.removeEventListener("hashchange", listener);
}

/** Which conversation the address names, and how to go to another; null is a new one. */
export function useAddress(): [string | null, (id: string | null) => void] {
  const hash = useSyncExternalStore(subscribe, () => window.location.hash);
  const go = useCallback((id: string | null) => {
    window.location.hash = id === null ? "" : PREFIX + encodeURIComponent(id);
  }, []);
  return [hash.startsWith(PREFIX) ? decodeURIComponent(hash.slice(PREFIX.length)) : null, go];
}
