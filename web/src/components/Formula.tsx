import { useEffect, useRef } from "react";

/** A formula as MathML, which browsers draw and screen readers say; its source until that is there,
 * and where it cannot be read. */
export function Formula({ source, isBlock }: { source: string; isBlock: boolean }) {
  const place = useRef<HTMLElement>(null);
  useEffect(() => {
    let isWanted = true;
    if (!place.current?.hasChildNodes()) place.current?.replaceChildren(source);
    void import("katex").then(({ default: katex }) => {
      if (!isWanted || !place.current) return;
      try {
        const drawn = document.createElement("span");
        katex.render(source, drawn, { displayMode: isBlock, output: "mathml", maxSize: 10 });
        place.current.replaceChildren(drawn);
      } catch {
        place.current.replaceChildren(source);
      }
    });
    return () => {
      isWanted = false;
    };
  }, [source, isBlock]);
  // React knows nothing of what is inside.
  return <code ref={place} data-formula={isBlock ? "block" : "inline"} />;
}
