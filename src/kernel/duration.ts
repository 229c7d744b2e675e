/** Formats durations for people: in errors and on the command line. */

/** Formats a duration with at most two units: `3d 4h`, `2m 5s`, `850ms`. */
export function formatDuration(durationMs: number): string {
  const ms = Math.max(0, Math.round(durationMs));
  if (ms < 1_000) return `${ms}ms`;
  const s = Math.round(ms / 1_000);
  if (s < 60) return `${s}s`;
  const m = Math.floor(s / 60);
  if (m < 60) return twoUnits(m, 'm', s % 60, 's');
  const h = Math.floor(m / 60);
  return h < 24 ? twoUnits(h, 'h', m % 60, 'm') : twoUnits(Math.floor(h / 24), 'd', h % 24, 'h');
}

const twoUnits = (large: number, unit: string, small: number, smaller: string): string =>
  small === 0 ? `${large}${unit}` : `${large}${unit} ${small}${smaller}`;
