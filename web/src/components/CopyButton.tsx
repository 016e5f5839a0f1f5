import { useState } from "react";
import { IconButton } from "./IconButton";

const SHOWN_MS = 1500;

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [isCopied, setIsCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setIsCopied(true);
    window.setTimeout(() => setIsCopied(false), SHOWN_MS);
  };
  return <IconButton icon="copy" label={isCopied ? "Copied" : label} onClick={() => void copy()} />;
}
