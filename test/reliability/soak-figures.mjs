/** Evaluates samples and errors of the soak: slopes, levels, and the errors that a kill or an edit explains. */

/** Error codes that a kill of the server, or an edit of its configuration entry, may cause. */
const explainedCodes = {
  kill: new Set(['outcome_uncertain', 'connect_failed', 'transport', 'reconnecting', 'circuit_open']),
  edit: new Set(['reconnecting']),
};
/** Time after its return in which errors of a server are still explained. */
const aftermathMs = 2_000;

/**
 * An error is explained if it has one of the codes above, and its call ran at some moment between the kill or edit of its own
 * server and 2 s after that server was back. Any other error is unexplained.
 */
export const isExplained = ({ server, code, beganMs, endedMs }, disturbances) =>
  disturbances.some(
    (each) =>
      each.server === server &&
      explainedCodes[each.kind].has(code) &&
      endedMs >= each.fromMs &&
      beganMs <= each.backMs + aftermathMs,
  );

/** Slope by least squares. */
export function slopeOf(points) {
  const mean = (list) => list.reduce((sum, each) => sum + each, 0) / list.length;
  const [x, y] = [mean(points.map(([each]) => each)), mean(points.map(([, each]) => each))];
  const up = points.reduce((sum, [atX, atY]) => sum + (atX - x) * (atY - y), 0);
  const down = points.reduce((sum, [atX]) => sum + (atX - x) ** 2, 0);
  return down === 0 ? 0 : up / down;
}

/** Medians of the first and of the last fifth. A figure is flat if they hardly differ. */
export function levelsOf(figures) {
  const fifth = Math.max(1, Math.floor(figures.length / 5));
  const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
  return { first: median(figures.slice(0, fifth)), last: median(figures.slice(-fifth)), max: Math.max(...figures) };
}

/** A histogram with buckets that grow by a tenth, so that a million times need little memory. */
export class Histogram {
  #counts = [];
  #n = 0;
  max = 0;

  add(ms) {
    const at = Math.max(0, Math.ceil(Math.log(Math.max(ms, 0.1) / 0.1) / Math.log(1.1)));
    this.#counts[at] = (this.#counts[at] ?? 0) + 1;
    this.#n++;
    this.max = Math.max(this.max, ms);
  }

  /** The upper edge of the bucket that contains this quantile. */
  at(share) {
    let left = this.#n * share;
    for (const [at, count = 0] of this.#counts.entries()) {
      left -= count;
      if (left <= 0) return Math.min(0.1 * 1.1 ** at, this.max);
    }
    return this.max;
  }
}

export function countBy(rows, keyOf) {
  const counts = {};
  for (const row of rows) {
    const key = keyOf(row);
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
}
