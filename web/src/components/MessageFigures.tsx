import type { Figures } from "../api/chat";
import { milliseconds, rate, tokens } from "../state/numbers";
import styles from "./MessageFigures.module.css";

/** What a reply that is being written takes. */
export function LiveFigures({ figures }: { figures: Figures }) {
  return (
    <span className={styles.live}>
      {rate(figures.generatedTokens, figures.decodeSeconds)} tok/s ·{" "}
      {tokens(figures.generatedTokens)}
    </span>
  );
}

/** What a reply took, in a line; the rest when asked. */
export function MessageFigures({ figures }: { figures: Figures }) {
  const { generatedTokens, decodeSeconds, promptTokens, cachedTokens, drafted, accepted } = figures;
  return (
    <details className={styles.figures}>
      <summary>
        {milliseconds(figures.firstPiece)} to the first word ·{" "}
        {rate(generatedTokens, decodeSeconds)} tok/s · {tokens(generatedTokens)}
      </summary>
      <dl>
        <dt>Prompt</dt>
        <dd>
          {tokens(promptTokens)}, {cachedTokens.toLocaleString()} of them in the cache
        </dd>
        <dt>Read while you typed</dt>
        <dd>{tokens(figures.readAhead)}</dd>
        <dt>Reply</dt>
        <dd>
          {tokens(generatedTokens)} in {milliseconds(decodeSeconds)}
        </dd>
        {drafted > 0 && (
          <>
            <dt>Speculation</dt>
            <dd>
              {accepted} of {drafted} guesses came true
            </dd>
          </>
        )}
      </dl>
    </details>
  );
}
