import { toJsxRuntime } from "hast-util-to-jsx-runtime";
import { useEffect, useState, type ReactNode } from "react";
import { Fragment, jsx, jsxs } from "react/jsx-runtime";
import type * as Languages from "../state/languages";

/** Longer code is shown plain: colours would take longer than a frame. */
const MAX_LENGTH = 50_000;

let loaded: typeof Languages | null = null;

/** Code in the colours of its language, once they are there. */
export function Highlighted({ language, code }: { language: string; code: string }): ReactNode {
  const [languages, setLanguages] = useState(loaded);
  useEffect(() => {
    if (languages || !language) return;
    let isWanted = true;
    void import("../state/languages").then((found) => {
      loaded = found;
      if (isWanted) setLanguages(found);
    });
    return () => {
      isWanted = false;
    };
  }, [languages, language]);
  if (!languages?.knows(language) || code.length > MAX_LENGTH) return code;
  return toJsxRuntime(languages.parse(language, code), { Fragment, jsx, jsxs });
}
