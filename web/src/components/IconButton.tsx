import type { ComponentProps } from "react";
import { Icon } from "./Icon";
import styles from "./IconButton.module.css";

type Props = Omit<ComponentProps<"button">, "children" | "aria-label"> & {
  icon: ComponentProps<typeof Icon>["name"];
  label: string;
};

/** A button that shows an icon and says `label`. */
export function IconButton({ icon, label, className = "", ...rest }: Props) {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      className={`${styles.button} ${className}`}
      {...rest}
    >
      <Icon name={icon} />
    </button>
  );
}
