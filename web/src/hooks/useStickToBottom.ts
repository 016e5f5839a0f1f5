import { useCallback, useEffect, useRef, useState, type RefObject } from "react";

/** Distance from the end, in pixels, within which a reader is taken to be at it. */
const NEAR = 48;

interface Stick {
  scroller: RefObject<HTMLDivElement | null>;
  content: RefObject<HTMLDivElement | null>;
  isAtEnd: boolean;
  toEnd: () => void;
}

/** Keeps `scroller` at its end while `content` in it grows, until the reader scrolls away; what has
 * not begun is shown from its top. */
export function useStickToBottom(hasBegun: boolean): Stick {
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const sticks = useRef(hasBegun);
  const [isAtEnd, setIsAtEnd] = useState(true);
  const toEnd = useCallback(() => {
    sticks.current = hasBegun;
    setIsAtEnd(true);
    scroller.current?.scrollTo(0, hasBegun ? scroller.current.scrollHeight : 0);
  }, [hasBegun]);

  useEffect(() => {
    const element = scroller.current;
    if (!element || !content.current) return;
    const onScroll = () => {
      const isNear = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR;
      sticks.current = hasBegun && isNear;
      setIsAtEnd(isNear || !hasBegun);
    };
    element.addEventListener("scroll", onScroll, { passive: true });
    const observer = new ResizeObserver(() => {
      if (sticks.current) element.scrollTo(0, element.scrollHeight);
    });
    observer.observe(content.current);
    return () => {
      element.removeEventListener("scroll", onScroll);
      observer.disconnect();
    };
  }, [hasBegun]);
  return { scroller, content, isAtEnd, toEnd };
}
