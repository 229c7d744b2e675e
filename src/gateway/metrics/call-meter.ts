/**
 * Counts calls by server and outcome, and how long they took, in plain numbers: nothing is made or looked up by text on the
 * path of a call but its server.
 * Not here: what the numbers are called (metric-table.ts), who reads them (metrics.ts).
 *
 * Invariant: at most `serversMax` names are kept between two looks, whatever callers call servers; what does not fit, and
 * what turns out to be no server, is counted without a name.
 */
import { ERRORS } from '../../kernel/errors.js';
import type { CallOutcome } from '../../policy/call-events.js';

/** In the order of the table of errors. */
export const outcomes: readonly CallOutcome[] = ['ok', ...(Object.keys(ERRORS) as (keyof typeof ERRORS)[])];

/** Upper ends in ms, from a cached answer to the longest that a call may take. */
export const bucketsMs: readonly number[] = [
  1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 600_000,
];

const serversMax = 4_096;
const outcomeIndex: ReadonlyMap<CallOutcome, number> = new Map(outcomes.map((outcome, i) => [outcome, i]));

export class ServerFigures {
  /** By `outcomes`. */
  readonly outcomes = new Float64Array(outcomes.length);
  /** By `bucketsMs`, each without those below it; one more for what is above them all. */
  readonly buckets = new Float64Array(bucketsMs.length + 1);
  sumMs = 0;
  restarts = 0;

  get calls(): number {
    return this.buckets.reduce((sum, count) => sum + count, 0);
  }

  add(other: ServerFigures): void {
    other.outcomes.forEach((count, i) => {
      this.outcomes[i] = (this.outcomes[i] as number) + count;
    });
    other.buckets.forEach((count, i) => {
      this.buckets[i] = (this.buckets[i] as number) + count;
    });
    this.sumMs += other.sumMs;
    this.restarts += other.restarts;
  }
}

export class CallMeter {
  readonly #servers = new Map<string, ServerFigures>();
  /** Of whatever is no server, or none any more. */
  readonly #nameless = new ServerFigures();

  called(server: string, outcome: CallOutcome, durationMs: number): void {
    const figures = this.#of(server);
    const at = outcomeIndex.get(outcome) as number;
    figures.outcomes[at] = (figures.outcomes[at] as number) + 1;
    let bucket = 0;
    while (bucket < bucketsMs.length && durationMs > (bucketsMs[bucket] as number)) bucket++;
    figures.buckets[bucket] = (figures.buckets[bucket] as number) + 1;
    figures.sumMs += durationMs;
  }

  restarted(server: string): void {
    this.#of(server).restarts++;
  }

  /** Of these servers, each of them, and last of all others together under the empty name. */
  figures(servers: readonly string[]): ReadonlyMap<string, ServerFigures> {
    const known = new Set(servers);
    for (const [name, figures] of this.#servers) {
      if (known.has(name)) continue;
      this.#nameless.add(figures);
      this.#servers.delete(name);
    }
    return new Map([
      ...servers.map((name) => [name, this.#servers.get(name) ?? new ServerFigures()] as const),
      ['', this.#nameless],
    ]);
  }

  #of(server: string): ServerFigures {
    let figures = this.#servers.get(server);
    if (figures) return figures;
    if (this.#servers.size >= serversMax) return this.#nameless;
    figures = new ServerFigures();
    this.#servers.set(server, figures);
    return figures;
  }
}
