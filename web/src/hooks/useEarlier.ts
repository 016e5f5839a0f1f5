import { useCallback, useEffect, useRef, useState } from "react";

/** Messages that are drawn at first, and that are added each time the reader comes to the top. */
const BATCH = 40;

/** Says from which of `count` messages on a conversation is drawn. The hook's `sentinel` stands
 * before the first of them: when it comes into sight, earlier ones are drawn too. */
export function useEarlier(
  id: string,
  count: number,
): { start: number; sentinel: (element: HTMLElement | null) => void } {
  const [drawn, setDrawn] = useState({ id, count: BATCH });
  if (drawn.id !== id) setDrawn({ id, count: BATCH });
  const observer = useRef<IntersectionObserver | null>(null);
  useEffect(() => () => observer.current?.disconnect(), []);
  const sentinel = useCallback((element: HTMLElement | null) => {
    observer.current?.disconnect();
    if (!element) return;
    observer.current = new IntersectionObserver(
      (entries) => {
        if (entries.some((entry) => entry.isIntersecting)) {
          setDrawn((before) => ({ ...before, count: before.count + BATCH }));
        }
      },
      { root: element.closest("[role=region]"), rootMargin: "600px 0px 0px 0px" },
    );
    observer.current.observe(element);
  }, []);
  return { start: Math.max(0, count - drawn.count), sentinel };
}
