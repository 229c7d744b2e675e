/**
 * Counts calls and their durations by server and outcome. A call costs one lookup of its server and no allocation.
 * Not here: the names of the metrics (metric-table.ts), scraping (metrics.ts).
 * Invariant: at most `serversMax` names are stored between two scrapes. Calls beyond that limit, and calls to unknown servers,
 * are counted together without a name.
 */
import { ERRORS } from '../../kernel/errors.js';
import type { CallOutcome } from '../../policy/policy-events.js';

export const outcomes: readonly CallOutcome[] = ['ok', ...(Object.keys(ERRORS) as (keyof typeof ERRORS)[])];

/** Upper bounds of the buckets: the first suits cached answers, the last is the maximum duration of a call. */
export const bucketsMs: readonly number[] = [
  1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 600_000,
];

const serversMax = 4_096;
const outcomeIndex: ReadonlyMap<CallOutcome, number> = new Map(outcomes.map((outcome, i) => [outcome, i]));

export class ServerCounts {
  /** Calls by index in `outcomes`. */
  readonly outcomes = new Float64Array(outcomes.length);
  /** Calls by index in `bucketsMs`, not cumulative. The last bucket is for calls above all bounds. */
  readonly buckets = new Float64Array(bucketsMs.length + 1);
  sumMs = 0;
  restarts = 0;

  get calls(): number {
    return this.buckets.reduce((sum, count) => sum + count, 0);
  }

  add(other: ServerCounts): void {
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
  readonly #servers = new Map<string, ServerCounts>();
  /** Counts of removed servers, of unknown names, and of names beyond `serversMax`. */
  readonly #nameless = new ServerCounts();

  readonly called = (server: string, outcome: CallOutcome, durationMs: number): void => {
    const counts = this.#of(server);
    const at = outcomeIndex.get(outcome) as number;
    counts.outcomes[at] = (counts.outcomes[at] as number) + 1;
    let bucket = 0;
    while (bucket < bucketsMs.length && durationMs > (bucketsMs[bucket] as number)) bucket++;
    counts.buckets[bucket] = (counts.buckets[bucket] as number) + 1;
    counts.sumMs += durationMs;
  };

  restarted(server: string): void {
    this.#of(server).restarts++;
  }

  /** Counts per server. The last entry has an empty name and the counts of all other names, which this call merges. */
  counts(servers: readonly string[]): ReadonlyMap<string, ServerCounts> {
    const known = new Set(servers);
    for (const [name, counts] of this.#servers) {
      if (known.has(name)) continue;
      this.#nameless.add(counts);
      this.#servers.delete(name);
    }
    return new Map([
      ...servers.map((name) => [name, this.#servers.get(name) ?? new ServerCounts()] as const),
      ['', this.#nameless],
    ]);
  }

  #of(server: string): ServerCounts {
    let counts = this.#servers.get(server);
    if (counts) return counts;
    if (this.#servers.size >= serversMax) return this.#nameless;
    counts = new ServerCounts();
    this.#servers.set(server, counts);
    return counts;
  }
}
