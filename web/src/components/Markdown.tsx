import { memo, useMemo, type ElementType, type ReactNode } from "react";
import ReactMarkdown, { type Components, type Options } from "react-markdown";
import remarkGfm from "remark-gfm";
import remarkMath from "remark-math";
import { blocksOf } from "../state/blocks";
import { withFormulas } from "../state/mathematics";
import { CodeBlock } from "./CodeBlock";
import { Formula } from "./Formula";
import styles from "./Markdown.module.css";

/** A text of the model's as Markdown. HTML in it is text; nothing in it is fetched. */
export function Markdown({ text }: { text: string }) {
  const blocks = useMemo(() => blocksOf(withFormulas(text)), [text]);
  return (
    <div className={styles.markdown} dir="auto">
      {blocks.map((block, index) => (
        <Block key={index} text={block} />
      ))}
    </div>
  );
}

const PLUGINS: Options["remarkPlugins"] = [
  remarkGfm,
  [remarkMath, { singleDollarTextMath: false }],
];

/** A link to elsewhere; what would lead to no other page is text. */
function Link({ href, children }: { href?: unknown; children: ReactNode }) {
  if (typeof href !== "string" || !href || href.startsWith("#")) return <>{children}</>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

type Element = ElementType<{ children?: ReactNode; dir: "auto" }>;

/** Each part goes in the direction of its own script. */
const directed = (Tag: Element) =>
  function Directed({ children }: { children?: ReactNode }) {
    return <Tag dir="auto">{children}</Tag>;
  };

const COMPONENTS: Components = {
  p: directed("p"),
  // The title of the page is of the first rank, and "You" or "Model" of the second.
  h1: directed("h3"),
  h2: directed("h4"),
  h3: directed("h5"),
  h4: directed("h6"),
  h5: directed("h6"),
  a: ({ children, href }) => <Link href={href}>{children}</Link>,
  // An image could tell somebody else what was said here, by the address it is fetched from.
  img: ({ alt, src }) => <Link href={src}>{alt || "image"}</Link>,
  pre: ({ children }) => <>{children}</>,
  code: ({ children, className, node }) => {
    const text = String(children);
    if (className?.includes("language-math"))
      return <Formula source={text.trim()} isBlock={className.includes("math-display")} />;
    // A block has a language or a line break; `code` in a sentence has neither.
    const position = node?.position;
    const isBlock = /\n/.test(text) || (position && position.start.line !== position.end.line);
    if (!isBlock && !className) return <code>{children}</code>;
    return (
      <CodeBlock
        language={className?.replace("language-", "") ?? ""}
        code={text.replace(/\n$/, "")}
      />
    );
  },
  table: ({ children }) => (
    <div className={styles.table} tabIndex={0} role="region" aria-label="Table">
      <table>{children}</table>
    </div>
  ),
};

const Block = memo(function Block({ text }: { text: string }) {
  return (
    <ReactMarkdown remarkPlugins={PLUGINS} components={COMPONENTS}>
      {text}
    </ReactMarkdown>
  );
});
