import { memo, useMemo } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { blocksOf } from "../state/blocks";
import { CodeBlock } from "./CodeBlock";
import styles from "./Markdown.module.css";

/** A text of the model's as Markdown. HTML in it is text; nothing in it is fetched. */
export function Markdown({ text }: { text: string }) {
  const blocks = useMemo(() => blocksOf(text), [text]);
  return (
    <div className={styles.markdown}>
      {blocks.map((block, index) => (
        <Block key={index} text={block} />
      ))}
    </div>
  );
}

const PLUGINS = [remarkGfm];

const COMPONENTS: Components = {
  a: ({ children, href }) => (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  ),
  // An image could tell somebody else what was said here, by the address it is fetched from.
  img: ({ alt, src }) => (
    <a
      href={typeof src === "string" ? src : undefined}
      target="_blank"
      rel="noopener noreferrer nofollow"
    >
      {alt || "image"}
    </a>
  ),
  pre: ({ children }) => <>{children}</>,
  code: ({ children, className, node }) => {
    const text = String(children);
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
