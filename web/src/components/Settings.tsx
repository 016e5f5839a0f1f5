import type { Sampling } from "../api/chat";
import type { Chat } from "../state/chat";
import { fieldsOf, prefer, preferences, type Preferences } from "../state/preferences";
import { useStore } from "../state/store";
import { Dialog } from "./Dialog";
import { SystemPrompt } from "./SystemPrompt";
import styles from "./Settings.module.css";

interface NumberField {
  name: keyof Sampling;
  label: string;
  step: number;
  min: number;
  max?: number;
  /** What holds if neither the reader nor the server says anything. */
  otherwise?: string;
}

const NUMBERS: NumberField[] = [
  { name: "temperature", label: "Temperature", step: 0.1, min: 0, max: 2 },
  { name: "top_k", label: "Top k", step: 1, min: 0 },
  { name: "top_p", label: "Top p", step: 0.01, min: 0, max: 1 },
  { name: "min_p", label: "Min p", step: 0.01, min: 0, max: 1 },
  { name: "repetition_penalty", label: "Repetition penalty", step: 0.05, min: 0 },
  { name: "presence_penalty", label: "Presence penalty", step: 0.1, min: -2, max: 2 },
  { name: "frequency_penalty", label: "Frequency penalty", step: 0.1, min: -2, max: 2 },
  { name: "max_tokens", label: "Longest reply", step: 1, min: 1, otherwise: "no limit" },
  { name: "seed", label: "Seed", step: 1, min: 0, otherwise: "random" },
];

export function Settings({ chat, onClose }: { chat: Chat; onClose(): void }) {
  const chosen = useStore(preferences, (state) => state);
  const defaults = useStore(chat, (state) => state.server?.defaults) ?? {};
  const sample = (name: keyof Sampling, text: string) => {
    prefer({ sampling: { ...chosen.sampling, [name]: text === "" ? undefined : Number(text) } });
  };
  const objection = objectionTo(chosen);
  return (
    <Dialog title="Settings" onClose={onClose}>
      <div className={styles.settings}>
        <section>
          <h3>This conversation</h3>
          <SystemPrompt chat={chat} />
        </section>
        <section>
          <h3>Sampling</h3>
          <p className={styles.hint}>
            For all conversations. What is empty is the server's choice, which stands there in grey.
          </p>
          <div className={styles.grid}>
            {NUMBERS.map(({ name, label, otherwise, ...range }) => (
              <label key={name}>
                {label}
                <input
                  type="number"
                  {...range}
                  value={chosen.sampling[name] ?? ""}
                  placeholder={String(defaults[name] ?? otherwise ?? "")}
                  onChange={(event) => sample(name, event.target.value)}
                />
              </label>
            ))}
          </div>
          <button
            type="button"
            className="outlined"
            disabled={Object.values(chosen.sampling).every((value) => value === undefined)}
            onClick={() => prefer({ sampling: {} })}
          >
            Back to the server's choices
          </button>
          <JsonField
            name="schema"
            label="JSON schema that every answer has to follow"
            placeholder='{"type": "object", …}'
            text={chosen.schema}
          />
          <JsonField
            name="more"
            label="Further fields of the request"
            placeholder='{"stop": ["\n\n"]}'
            text={chosen.more}
          />
          {objection && (
            <p role="alert" className="objection">
              {objection}
            </p>
          )}
        </section>
        <section>
          <h3>This page</h3>
          <label>
            Colours
            <select
              value={chosen.theme}
              onChange={(event) => prefer({ theme: event.target.value as Preferences["theme"] })}
            >
              <option value="system">As the system</option>
              <option value="light">Light</option>
              <option value="dark">Dark</option>
            </select>
          </label>
          <Switch
            name="readsAhead"
            label="Read drafts while I type (they go to this server only)"
            isOn={chosen.readsAhead}
          />
          <Switch
            name="enterSends"
            label="Enter sends, and Shift+Enter begins a line"
            isOn={chosen.enterSends}
          />
          <Switch
            name="dropsOldest"
            label="Leave out the oldest messages when the context is full; the reply says so"
            isOn={chosen.dropsOldest}
          />
          <Switch
            name="showsPages"
            label="Show how each part of the cache came there"
            isOn={chosen.showsPages}
          />
        </section>
      </div>
    </Dialog>
  );
}

interface JsonFieldProps {
  name: "schema" | "more";
  label: string;
  placeholder: string;
  text: string;
}

function JsonField({ name, label, placeholder, text }: JsonFieldProps) {
  return (
    <label>
      {label}
      <textarea
        className="code"
        rows={3}
        spellCheck={false}
        value={text}
        placeholder={placeholder}
        onChange={(event) => prefer({ [name]: event.target.value })}
      />
    </label>
  );
}

interface SwitchProps {
  name: "readsAhead" | "enterSends" | "dropsOldest" | "showsPages";
  label: string;
  isOn: boolean;
}

function Switch({ name, label, isOn }: SwitchProps) {
  return (
    <label className={styles.switch}>
      <input
        type="checkbox"
        checked={isOn}
        onChange={(event) => prefer({ [name]: event.target.checked })}
      />
      {label}
    </label>
  );
}

function objectionTo(chosen: Preferences): string | null {
  try {
    fieldsOf(chosen);
    return null;
  } catch (error) {
    return (error as Error).message;
  }
}
