import { useState } from "react";
import { setKey } from "../api/client";
import { Dialog } from "./Dialog";

/** Asks for the key that the server wants. */
export function KeyPrompt({ isWrong, onGiven }: { isWrong: boolean; onGiven(): void }) {
  const [key, setTyped] = useState("");
  return (
    <Dialog title="This server wants a key">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          setKey(key.trim());
          onGiven();
        }}
      >
        <p>
          Whoever started it has one: it is in the file of <code>--api-key-file</code>, or in{" "}
          <code>INFERNO_API_KEY</code>. This browser remembers it.
        </p>
        <label>
          API key
          <input
            type="password"
            autoComplete="current-password"
            autoFocus
            aria-invalid={isWrong}
            aria-describedby={isWrong ? "key-is-wrong" : undefined}
            value={key}
            onChange={(event) => setTyped(event.target.value)}
          />
        </label>
        {isWrong && (
          <p id="key-is-wrong" role="alert" className="objection">
            The server does not accept that key.
          </p>
        )}
        <p>
          <button type="submit" className="primary" disabled={!key.trim()}>
            Go on
          </button>
        </p>
      </form>
    </Dialog>
  );
}
