/** Figures as the page writes them. */

export function milliseconds(seconds: number): string {
  return seconds < 1 ? `${Math.round(1e3 * seconds)} ms` : `${seconds.toFixed(1)} s`;
}

export function rate(count: number, seconds: number): string {
  if (count < 2 || seconds <= 0) return "–";
  const perSecond = count / seconds;
  return perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond).toLocaleString();
}

export function bytes(count: number): string {
  const megabytes = count / 1e6;
  return megabytes < 1000 ? `${Math.round(megabytes)} MB` : `${(megabytes / 1e3).toFixed(1)} GB`;
}

export function tokens(count: number): string {
  return `${count.toLocaleString()} ${count === 1 ? "token" : "tokens"}`;
}
