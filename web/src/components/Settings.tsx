import type { Sampling } from "../api/chat";
import type { Chat } from "../state/chat";
import { fieldsOf, prefer, preferences, type Preferences } from "../state/preferences";
import { useStore } from "../state/store";
import { Dialog } from "./Dialog";
import styles from "./Settings.module.css";

const NUMBERS: { name: keyof Sampling; label: string; step: number; min: number; max?: number }[] =
  [
    { name: "temperature", label: "Temperature", step: 0.1, min: 0, max: 2 },
    { name: "top_k", label: "Top k", step: 1, min: 0 },
    { name: "top_p", label: "Top p", step: 0.01, min: 0, max: 1 },
    { name: "min_p", label: "Min p", step: 0.01, min: 0, max: 1 },
    { name: "repetition_penalty", label: "Repetition penalty", step: 0.05, min: 0 },
    { name: "presence_penalty", label: "Presence penalty", step: 0.1, min: -2, max: 2 },
    { name: "frequency_penalty", label: "Frequency penalty", step: 0.1, min: -2, max: 2 },
    { name: "max_tokens", label: "Most tokens of a reply", step: 1, min: 1 },
    { name: "seed", label: "Seed", step: 1, min: 0 },
  ];

export function Settings({ chat, onClose }: { chat: Chat; onClose(): void }) {
  const chosen = useStore(preferences, (state) => state);
  const defaults = useStore(chat, (state) => state.server?.defaults) ?? {};
  const system = useStore(chat, (state) => state.open.system);
  const openId = useStore(chat, (state) => state.open.id);
  const sample = (name: keyof Sampling, text: string) => {
    prefer({ sampling: { ...chosen.sampling, [name]: text === "" ? undefined : Number(text) } });
  };
  const objection = objectionTo(chosen);
  return (
    <Dialog title="Settings" onClose={onClose}>
      <div className={styles.settings}>
        <section>
          <h3>This conversation</h3>
          <label>
            System prompt
            <textarea
              rows={3}
              value={system}
              placeholder="What the model should be or heed"
              onChange={(event) => chat.change(openId, { system: event.target.value })}
            />
          </label>
        </section>
        <section>
          <h3>Sampling</h3>
          <p className={styles.hint}>
            What is empty is the server's to choose; grey figures are its choices.
          </p>
          <div className={styles.grid}>
            {NUMBERS.map(({ name, label, ...range }) => (
              <label key={name}>
                {label}
                <input
                  type="number"
                  {...range}
                  value={chosen.sampling[name] ?? ""}
                  placeholder={String(defaults[name] ?? "")}
                  onChange={(event) => sample(name, event.target.value)}
                />
              </label>
            ))}
          </div>
          <button
            type="button"
            disabled={Object.values(chosen.sampling).every((value) => value === undefined)}
            onClick={() => prefer({ sampling: {} })}
          >
            Back to the server's choices
          </button>
          <label>
            JSON schema that answers have
            <textarea
              className="code"
              rows={3}
              spellCheck={false}
              value={chosen.schema}
              placeholder='{"type": "object", …}'
              onChange={(event) => prefer({ schema: event.target.value })}
            />
          </label>
          <label>
            Further fields of the request
            <textarea
              className="code"
              rows={2}
              spellCheck={false}
              value={chosen.more}
              placeholder='{"stop": ["\n\n"]}'
              onChange={(event) => prefer({ more: event.target.value })}
            />
          </label>
          {objection && (
            <p role="alert" className={styles.objection}>
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
            chosen={chosen}
          />
          <Switch
            name="enterSends"
            label="Enter sends; Shift+Enter begins a line"
            chosen={chosen}
          />
          <Switch name="showsPages" label="Show what is in the cache" chosen={chosen} />
        </section>
      </div>
    </Dialog>
  );
}

interface SwitchProps {
  name: "readsAhead" | "enterSends" | "showsPages";
  label: string;
  chosen: Preferences;
}

function Switch({ name, label, chosen }: SwitchProps) {
  return (
    <label className={styles.switch}>
      <input
        type="checkbox"
        checked={chosen[name]}
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
