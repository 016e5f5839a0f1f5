import { useEffect } from "react";
import { preferences } from "../state/preferences";
import { useStore } from "../state/store";

/** Gives the page the colours that were chosen, or the system's. */
export function useTheme(): void {
  const theme = useStore(preferences, (state) => state.theme);
  useEffect(() => {
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    const apply = () => {
      const isDark = theme === "dark" || (theme === "system" && system.matches);
      document.documentElement.dataset["theme"] = isDark ? "dark" : "light";
    };
    apply();
    system.addEventListener("change", apply);
    return () => system.removeEventListener("change", apply);
  }, [theme]);
}
