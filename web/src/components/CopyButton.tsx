import { useEffect, useState } from "react";
import { copy } from "../state/clipboard";
import { IconButton } from "./IconButton";

const SHOWN_MS = 1500;

/** Copies `text`, and shows that it did, or could not. */
export function CopyButton({ text, label }: { text: string; label: string }) {
  const [result, setResult] = useState<"Copied" | "Could not copy" | null>(null);
  useEffect(() => {
    if (!result) return;
    const timer = window.setTimeout(() => setResult(null), SHOWN_MS);
    return () => window.clearTimeout(timer);
  }, [result]);
  return (
    <IconButton
      icon={result === null ? "copy" : result === "Copied" ? "check" : "close"}
      label={result ?? label}
      onClick={() => void copy(text).then((ok) => setResult(ok ? "Copied" : "Could not copy"))}
    />
  );
}
