/** The page's icons: strokes on a grid of 24. They say nothing to a screen reader; labels do. */

const PATHS = {
  menu: "M4 6h16M4 12h16M4 18h16",
  plus: "M12 5v14M5 12h14",
  send: "M12 19V5M6 11l6-6 6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h10v10H9zM5 15V5h10",
  edit: "M4 20h4L19 9l-4-4L4 16z",
  again: "M4 12a8 8 0 1 1 3 6M4 20v-5h5",
  forward: "M6 5l12 7-12 7z",
  left: "M15 5l-7 7 7 7",
  right: "M9 5l7 7-7 7",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
  more: "M6 12h0M12 12h0M18 12h0",
  check: "M5 13l5 5L19 7",
  attach: "M8 12l6-6a3 3 0 0 1 4 4l-8 8a5 5 0 0 1-7-7l7-7",
  close: "M6 6l12 12M18 6L6 18",
  keyboard: "M3 7h18v10H3zM7 11h0M11 11h0M15 11h0M8 14h8",
  save: "M12 4v11M7 10l5 5 5-5M5 20h14",
  open: "M12 15V4M7 9l5-5 5 5M5 20h14",
} as const;

export function Icon({ name }: { name: keyof typeof PATHS }) {
  return (
    <svg
      viewBox="0 0 24 24"
      width="18"
      height="18"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.8"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
