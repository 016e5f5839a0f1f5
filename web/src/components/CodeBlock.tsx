import { CopyButton } from "./CopyButton";
import { Highlighted } from "./Highlighted";
import styles from "./CodeBlock.module.css";

export function CodeBlock({ language, code }: { language: string; code: string }) {
  return (
    <div className={styles.block}>
      <div className={styles.head}>
        <span>{language || "text"}</span>
        <CopyButton text={code} label="Copy code" />
      </div>
      <pre tabIndex={0} aria-label={`Code${language ? `, ${language}` : ""}`}>
        <code>
          <Highlighted language={language} code={code} />
        </code>
      </pre>
    </div>
  );
}
