import { useState } from "react";
import { setKey } from "../api/client";
import { Dialog } from "./Dialog";

/** Asks for the key that the server wants. */
export function KeyPrompt({ onGiven }: { onGiven(): void }) {
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
        <p>Whoever started it has one: it is in the file that was given as --api-key-file.</p>
        <label>
          API key
          <input
            type="password"
            autoComplete="current-password"
            value={key}
            onChange={(event) => setTyped(event.target.value)}
          />
        </label>
        <p>
          <button type="submit" className="primary" disabled={!key.trim()}>
            Go on
          </button>
        </p>
      </form>
    </Dialog>
  );
}
