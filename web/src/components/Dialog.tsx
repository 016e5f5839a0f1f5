import { useLayoutEffect, useRef, type ReactNode } from "react";
import { IconButton } from "./IconButton";
import styles from "./Dialog.module.css";

interface Props {
  title: string;
  /** Absent for a dialog that must be answered. */
  onClose?: () => void;
  children: ReactNode;
}

export function Dialog({ title, onClose, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  // Closed while it is still there, it gives the focus back to where it was.
  useLayoutEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      className={styles.dialog}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose?.();
      }}
      onClick={(event) => {
        if (event.target === dialog.current) onClose?.();
      }}
    >
      <div className={styles.inside}>
        <header>
          <h2>{title}</h2>
          {onClose && <IconButton icon="close" label="Close" onClick={onClose} />}
        </header>
        {children}
      </div>
    </dialog>
  );
}
