import { useState } from "react";
import { prefer, preferences } from "../state/preferences";
import { useStore } from "../state/store";
import { useMedia } from "./useMedia";

/** The list of conversations: beside them where there is room, and over them, for a moment, where
 * there is none. */
export function useSidebar(): {
  isOpen: boolean;
  isOver: boolean;
  show(isOpen: boolean): void;
} {
  const isOver = useMedia("(max-width: 48rem)");
  const isPreferred = useStore(preferences, (state) => state.sidebarIsOpen);
  const [isDrawn, setIsDrawn] = useState(false);
  return {
    isOpen: isOver ? isDrawn : isPreferred,
    isOver,
    show: isOver ? setIsDrawn : (isOpen) => prefer({ sidebarIsOpen: isOpen }),
  };
}
