/**
 * What happened to each server since Hostler was started, the last lines of it, and what its process writes to stderr.
 * Not here: words (event-line.ts), delivering (control/operations.ts).
 *
 * Invariants: at most `linesMax` lines of each server and `serversMax` servers; whatever is shown has been redacted.
 */
import type { Host } from '../host/host.js';
import type { HostEvent } from '../host/host-events.js';
import { setBounded } from '../kernel/bounded-map.js';
import type { Cancel, Clock } from '../kernel/clock.js';
import type { Redact } from '../kernel/redact.js';
import { type EventLine, eventLine, loggedKinds } from './event-line.js';

const linesMax = 200;
const serversMax = 1_000;
/** How often stderr is looked at for whoever follows it. */
const pollMs = 500;
const stderrBytes = 64 * 1024;

export interface LogLine {
  readonly at: string;
  readonly server: string;
  /** `hostler` says what happened to it; `stderr` is what it said itself. */
  readonly from: 'hostler' | 'stderr';
  readonly text: string;
}

type Told = (line: LogLine, level: EventLine['level']) => void;

export class ServerLogs {
  readonly #host: Pick<Host, 'on' | 'stderr'>;
  readonly #clock: Clock;
  readonly #redact: Redact;
  readonly #lines = new Map<string, LogLine[]>();
  readonly #listeners = new Set<Told>();
  readonly #offs: readonly (() => void)[];

  constructor(host: Pick<Host, 'on' | 'stderr'>, clock: Clock, redact: Redact) {
    this.#host = host;
    this.#clock = clock;
    this.#redact = redact;
    this.#offs = loggedKinds.map((kind) => host.on(kind, (event) => this.#heard(event)));
  }

  /** Hears every line of Hostler's own. Returns what ends it. */
  on(told: Told): () => void {
    this.#listeners.add(told);
    return () => this.#listeners.delete(told);
  }

  /** What is kept of one server: first what happened to it, then the end of its stderr. */
  tail(server: string): LogLine[] {
    const said = linesOf(this.#host.stderr(server, stderrBytes)).slice(-linesMax);
    return [...(this.#lines.get(server) ?? []), ...said.map((text) => this.#line(server, 'stderr', text))];
  }

  /** Tells every new line until the signal aborts. */
  follow(server: string, told: (line: LogLine) => void, signal: AbortSignal): Promise<void> {
    let before = linesOf(this.#host.stderr(server, stderrBytes));
    const look = () => {
      const now = linesOf(this.#stderrOf(server));
      for (const text of newLines(before, now)) told(this.#line(server, 'stderr', text));
      before = now;
    };
    return new Promise((resolve) => {
      let cancel: Cancel = () => {};
      const again = () => {
        look();
        cancel = this.#clock.at(this.#clock.nowMs() + pollMs, again);
      };
      const off = this.on((line) => {
        if (line.server !== server) return;
        // What the process said before comes before what became of it.
        look();
        told(line);
      });
      again();
      const end = () => {
        cancel();
        off();
        resolve();
      };
      if (signal.aborted) end();
      else signal.addEventListener('abort', end, { once: true });
    });
  }

  close(): void {
    for (const off of this.#offs) off();
    this.#listeners.clear();
  }

  /** A server may be taken out of the configuration while somebody follows it. */
  #stderrOf(server: string): string | undefined {
    try {
      return this.#host.stderr(server, stderrBytes);
    } catch {
      return undefined;
    }
  }

  #heard(event: HostEvent): void {
    const said = eventLine(event);
    if (!said) return;
    const line = this.#line(event.server, 'hostler', this.#redact(said.text));
    const lines = this.#lines.get(event.server) ?? [];
    lines.push(line);
    if (lines.length > linesMax) lines.shift();
    setBounded(this.#lines, event.server, lines, serversMax);
    for (const told of this.#listeners) told(line, said.level);
  }

  #line(server: string, from: LogLine['from'], text: string): LogLine {
    return { at: this.#clock.date().toISOString(), server, from, text };
  }
}

/** Whole lines only: the rest of the last one is still to come. */
const linesOf = (text: string | undefined): string[] => (text ?? '').split('\n').slice(0, -1);

/**
 * What `now` has behind the end of `before`; all of it when the two have nothing in common. Each line is looked at a few times
 * (Knuth, Morris and Pratt), whatever a server writes: it could be thirty thousand lines of one letter.
 */
export function newLines(before: readonly string[], now: readonly string[]): readonly string[] {
  const shorter = shorterMatches(now);
  /** So many lines at the beginning of `now` are the last ones that were looked at. */
  let matched = 0;
  for (const line of before) {
    while (matched > 0 && (matched === now.length || line !== now[matched])) matched = shorter[matched - 1] as number;
    if (matched < now.length && line === now[matched]) matched++;
  }
  return now.slice(matched);
}

/** For each beginning of the lines, how many of its last are also its first, all of them excepted. */
function shorterMatches(lines: readonly string[]): number[] {
  const shorter = lines.length === 0 ? [] : [0];
  for (let i = 1, matched = 0; i < lines.length; i++) {
    while (matched > 0 && lines[i] !== lines[matched]) matched = shorter[matched - 1] as number;
    if (lines[i] === lines[matched]) matched++;
    shorter.push(matched);
  }
  return shorter;
}
