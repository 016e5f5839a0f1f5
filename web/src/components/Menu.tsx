import { useRef, useState, type ComponentProps, type KeyboardEvent } from "react";
import type { Icon } from "./Icon";
import { IconButton } from "./IconButton";
import styles from "./Menu.module.css";

export interface Choice {
  label: string;
  isDangerous?: boolean;
  choose(): void;
}

interface Props {
  icon: ComponentProps<typeof Icon>["name"];
  label: string;
  choices: readonly Choice[];
}

/** A button that offers more than one thing to do. */
export function Menu({ icon, label, choices }: Props) {
  const [isOpen, setIsOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLDivElement>(null);

  const open = () => {
    const element = list.current;
    if (!element || !button.current) return;
    // In the top layer nothing cuts it off; so it has to be put beside its button, above or below.
    element.showPopover();
    const beside = button.current.getBoundingClientRect();
    const below = beside.bottom + element.offsetHeight < window.innerHeight;
    element.style.top = `${below ? beside.bottom : beside.top - element.offsetHeight}px`;
    element.style.left = `${Math.max(8, Math.min(beside.right, window.innerWidth - 8) - element.offsetWidth)}px`;
    element.querySelector("button")?.focus();
  };
  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const items = [...event.currentTarget.querySelectorAll("button")];
    const next = items.indexOf(document.activeElement as HTMLButtonElement) + step;
    items.at(next % items.length)?.focus();
  };

  return (
    <>
      <IconButton
        ref={button}
        icon={icon}
        label={label}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        onClick={() => (isOpen ? list.current?.hidePopover() : open())}
      />
      <div
        ref={list}
        popover="auto"
        role="menu"
        aria-label={label}
        className={styles.menu}
        data-open={isOpen}
        onToggle={(event) => setIsOpen(event.newState === "open")}
        onKeyDown={onKeyDown}
      >
        {choices.map(({ label: name, isDangerous, choose }) => (
          <button
            key={name}
            type="button"
            role="menuitem"
            className={isDangerous ? "danger" : undefined}
            onClick={() => {
              list.current?.hidePopover();
              choose();
            }}
          >
            {name}
          </button>
        ))}
      </div>
    </>
  );
}
