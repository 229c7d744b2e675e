/** What the soak makes of its samples and errors: slopes, levels, and which errors a kill or an edit explains. */

/** What a call may be told because its server was killed, or because its entry in the configuration was edited. */
const explainedCodes = {
  kill: new Set(['outcome_uncertain', 'connect_failed', 'transport', 'reconnecting', 'circuit_open']),
  edit: new Set(['reconnecting']),
};
/** How long after its return a server may still be failing because of what was done to it. */
const aftermathMs = 2_000;

/**
 * The rule: an error is explained when its code is one of those above and the call was under way at some moment from the kill or edit
 * of the very server it went to until 2 s after that server was back. Anything else is unexplained: another code, another server,
 * a later time, an edit that does not concern the server.
 */
export const isExplained = ({ server, code, beganMs, endedMs }, disturbances) =>
  disturbances.some(
    (each) =>
      each.server === server &&
      explainedCodes[each.kind].has(code) &&
      endedMs >= each.fromMs &&
      beganMs <= each.backMs + aftermathMs,
  );

/** Least squares: units of y per unit of x. */
export function slopeOf(points) {
  const mean = (list) => list.reduce((sum, each) => sum + each, 0) / list.length;
  const [x, y] = [mean(points.map(([each]) => each)), mean(points.map(([, each]) => each))];
  const up = points.reduce((sum, [atX, atY]) => sum + (atX - x) * (atY - y), 0);
  const down = points.reduce((sum, [atX]) => sum + (atX - x) ** 2, 0);
  return down === 0 ? 0 : up / down;
}

/** The level of the first and of the last fifth, as medians: a figure is flat when the two hardly differ. */
export function levelsOf(figures) {
  const fifth = Math.max(1, Math.floor(figures.length / 5));
  const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
  return { first: median(figures.slice(0, fifth)), last: median(figures.slice(-fifth)), max: Math.max(...figures) };
}

/** Times in buckets that grow by a tenth: a million of them cost nothing. */
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

  /** The upper edge of the bucket in which that share is reached. */
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
