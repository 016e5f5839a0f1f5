import type { Figures } from "../api/chat";
import { milliseconds, rate } from "../state/numbers";
import styles from "./MessageFigures.module.css";

/** What a reply took, in a line; the rest when asked. */
export function MessageFigures({ figures }: { figures: Figures }) {
  const { generatedTokens, decodeSeconds, promptTokens, cachedTokens, drafted, accepted } = figures;
  return (
    <details className={styles.figures}>
      <summary>
        {milliseconds(figures.firstPiece)} to the first word ·{" "}
        {rate(generatedTokens, decodeSeconds)} tok/s
      </summary>
      <dl>
        <dt>Prompt</dt>
        <dd>
          {promptTokens.toLocaleString()} tokens, {cachedTokens.toLocaleString()} of them known
        </dd>
        <dt>Read while you typed</dt>
        <dd>{figures.readAhead.toLocaleString()} tokens</dd>
        <dt>Reply</dt>
        <dd>{generatedTokens.toLocaleString()} tokens</dd>
        {drafted > 0 && (
          <>
            <dt>Speculation</dt>
            <dd>
              {accepted} of {drafted} guesses came true
            </dd>
          </>
        )}
        {figures.warnings.map((warning) => (
          <dd key={warning}>{warning}</dd>
        ))}
      </dl>
    </details>
  );
}
