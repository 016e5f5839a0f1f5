import { useEffect, useRef, useState } from "react";
import type { Reply } from "../state/reply";
import { saidIn } from "../state/thought";

/** Screen readers hear a reply in pieces of this length, not word by word. */
const EVERY_MS = 2000;

/** Says what is new of a reply, now and then, and the rest when it is over. */
export function Announcer({ reply }: { reply: Reply | undefined }) {
  const [said, setSaid] = useState("");
  const told = useRef(0);
  useEffect(() => {
    if (!reply) return;
    told.current = saidIn(reply.text).reply.length;
    const say = () => {
      const text = saidIn(reply.text).reply;
      if (text.length > told.current) setSaid(text.slice(told.current));
      told.current = text.length;
    };
    const timer = window.setInterval(say, EVERY_MS);
    return () => {
      window.clearInterval(timer);
      say();
    };
  }, [reply]);
  return (
    <div className="visually-hidden" aria-live="polite">
      {said}
    </div>
  );
}
