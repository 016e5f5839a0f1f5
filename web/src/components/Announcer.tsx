import { useEffect, useState } from "react";
import type { Reply } from "../state/reply";

/** Screen readers hear a reply in pieces of this length, not word by word. */
const EVERY_MS = 2000;

/** Says what is new of a reply, now and then. */
export function Announcer({ reply }: { reply: Reply }) {
  const [said, setSaid] = useState("");
  useEffect(() => {
    let told = reply.text.length;
    const timer = window.setInterval(() => {
      const text = reply.text;
      if (text.length > told) setSaid(text.slice(told));
      told = text.length;
    }, EVERY_MS);
    return () => window.clearInterval(timer);
  }, [reply]);
  return (
    <div className="visually-hidden" aria-live="polite">
      {said}
    </div>
  );
}
