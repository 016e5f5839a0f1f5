import { useEffect, useRef, useState } from "react";
import type { Chat } from "../state/chat";
import { prefer, preferences } from "../state/preferences";
import { useStore } from "../state/store";
import styles from "./Settings.module.css";

const PAUSE_MS = 400;

/** What the model is told before the conversation, and presets of it. */
export function SystemPrompt({ chat }: { chat: Chat }) {
  const id = useStore(chat, (state) => state.open.id);
  const kept = useStore(chat, (state) => state.open.system);
  const prompts = useStore(preferences, (state) => state.prompts);
  const [text, setText] = useState(kept);
  const latest = useRef(text);

  const write = (changed: string) => {
    setText(changed);
    latest.current = changed;
  };
  // Each change is kept by the server; a pause in typing is soon enough, and so is the end of it.
  useEffect(() => {
    const timer = window.setTimeout(() => keep(chat, id, text), PAUSE_MS);
    return () => window.clearTimeout(timer);
  }, [chat, id, text]);
  useEffect(() => () => keep(chat, id, latest.current), [chat, id]);

  const isPreset = prompts.includes(text.trim());
  return (
    <>
      <label>
        System prompt
        <textarea
          rows={4}
          dir="auto"
          value={text}
          placeholder="What the model should be, or heed"
          onChange={(event) => write(event.target.value)}
        />
      </label>
      <div className={styles.presets}>
        <select
          aria-label="Presets"
          value=""
          disabled={prompts.length === 0}
          onChange={(event) => write(prompts[Number(event.target.value)] ?? "")}
        >
          <option value="">Presets …</option>
          {prompts.map((prompt, index) => (
            <option key={prompt} value={index}>
              {prompt.length > 60 ? `${prompt.slice(0, 59)}…` : prompt}
            </option>
          ))}
        </select>
        {isPreset ? (
          <button
            type="button"
            className="outlined"
            onClick={() => prefer({ prompts: prompts.filter((other) => other !== text.trim()) })}
          >
            Forget this preset
          </button>
        ) : (
          <button
            type="button"
            className="outlined"
            disabled={!text.trim()}
            onClick={() => prefer({ prompts: [...prompts, text.trim()] })}
          >
            Keep as a preset
          </button>
        )}
      </div>
    </>
  );
}

function keep(chat: Chat, id: string, system: string): void {
  const { open } = chat.get();
  if (open.id === id && open.system !== system) chat.change(id, { system });
}
