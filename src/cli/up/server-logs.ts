/**
 * Stores the last events of each server as log lines, and reads its stderr. Each line has the time at which it was logged.
 * Not here: texts of events (output/event-line.ts), sending lines (control/operations.ts).
 * Invariants: at most `linesMax` lines of each server and `serversMax` servers; all text is redacted. Repeated
 * failures of a parked server do not push out the lines of other events.
 */
import type { Host } from '../../host/host.js';
import type { HostEvent } from '../../host/host-events.js';
import { setBounded } from '../../kernel/bounded-map.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { Redact } from '../../kernel/redact.js';
import { type EventLine, eventLine, loggedKinds } from '../output/event-line.js';

const linesMax = 200;
const serversMax = 1_000;
const pollMs = 500;
const stderrBytes = 64 * 1024;

export interface LogLine {
  readonly at: string;
  readonly server: string;
  /** Source of the line: an event of the server (`hostler`), or its output. */
  readonly from: 'hostler' | 'stderr';
  readonly text: string;
}

type StderrLine = ReturnType<Host['stderrLines']>[number];
type LoggedHost = Pick<Host, 'on' | 'names' | 'stderrLines'>;
type OnLine = (line: LogLine, level: EventLine['level']) => void;

export class ServerLogs {
  readonly #host: LoggedHost;
  readonly #clock: Clock;
  readonly #redact: Redact;
  readonly #lines = new Map<string, EventLines>();
  readonly #listeners = new Set<OnLine>();
  readonly #offs: readonly (() => void)[];

  constructor(host: LoggedHost, clock: Clock, redact: Redact) {
    this.#host = host;
    this.#clock = clock;
    this.#redact = redact;
    this.#offs = loggedKinds.map((kind) => host.on(kind, (event) => this.#onEvent(event)));
  }

  /** Calls `onLine` for event lines, not for stderr. Returns a function that unsubscribes. */
  on(onLine: OnLine): () => void {
    this.#listeners.add(onLine);
    return () => this.#listeners.delete(onLine);
  }

  /** Returns events and stored stderr lines of these servers in order of time: the last `count` lines, and no line before `since`. */
  tail(servers: readonly string[], since = '', count = Number.POSITIVE_INFINITY): LogLine[] {
    const lines = servers
      // Stderr first: an event of the same moment, such as an exit, comes after the last output.
      .flatMap((server) => [...this.#stderrTail(server), ...(this.#lines.get(server)?.all ?? [])])
      .filter(({ at }) => at >= since)
      .sort((one, other) => (one.at < other.at ? -1 : one.at > other.at ? 1 : 0));
    return lines.slice(Math.max(0, lines.length - count));
  }

  /** Emits new lines of one server, or of all servers, including those that an edit of the configuration adds. */
  follow(only: string | undefined, emit: (line: LogLine) => void, signal: AbortSignal): Promise<void> {
    const seen = new Map<string, readonly string[]>();
    const followed = () => (only === undefined ? this.#host.names() : [only]);
    const read = (server: string): readonly StderrLine[] => {
      const lines = this.#stderrOf(server);
      const before = seen.get(server) ?? [];
      const now = lines.map(({ text }) => text);
      seen.set(server, now);
      return lines.slice(lines.length - newLines(before, now).length);
    };
    const emitStderr = (server: string) => {
      for (const line of read(server)) emit(this.#stderrLine(server, line));
    };
    // Lines that exist now are not emitted: the caller has them from `tail`.
    for (const server of followed()) read(server);
    return new Promise((resolve) => {
      let cancel: Cancel = () => {};
      const again = () => {
        const servers = followed();
        for (const server of servers) emitStderr(server);
        for (const server of seen.keys()) if (!servers.includes(server)) seen.delete(server);
        cancel = this.#clock.at(this.#clock.nowMs() + pollMs, again);
      };
      const off = this.on((line) => {
        if (only !== undefined && line.server !== only) return;
        // Stderr that was written before the event must be emitted before it.
        emitStderr(line.server);
        emit(line);
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

  /** An edit of the configuration may remove the server during `follow`. */
  #stderrOf(server: string): readonly StderrLine[] {
    try {
      return this.#host.stderrLines(server, stderrBytes);
    } catch {
      return [];
    }
  }

  #stderrTail(server: string): LogLine[] {
    const lines = this.#host.stderrLines(server, stderrBytes);
    return lines.slice(-linesMax).map((line) => this.#stderrLine(server, line));
  }

  #onEvent(event: HostEvent): void {
    const shown = eventLine(event);
    if (!shown) return;
    const text = this.#redact(shown.text);
    const line: LogLine = { at: this.#clock.date().toISOString(), server: event.server, from: 'hostler', text };
    const lines = this.#lines.get(event.server) ?? new EventLines();
    lines.add(line, event);
    setBounded(this.#lines, event.server, lines, serversMax);
    for (const onLine of this.#listeners) onLine(line, shown.level);
  }

  #stderrLine(server: string, { text, atMs }: StderrLine): LogLine {
    return { at: new Date(atMs).toISOString(), server, from: 'stderr', text };
  }
}

/**
 * The last event lines of one server. A parked server is tried again and again. Of consecutive tries that fail for the same reason,
 * only the first and the last are stored.
 */
class EventLines {
  #lines: LogLine[] = [];
  /** Lines of the try in progress. Undefined unless a parked server is tried. */
  #current: LogLine[] | undefined;
  /** Lines of the last try, if it failed for the same reason as the one before. */
  #repeated: ReadonlySet<LogLine> = new Set();

  get all(): readonly LogLine[] {
    return this.#lines;
  }

  add(line: LogLine, event: HostEvent): void {
    if (event.kind === 'state') {
      if (event.from === 'parked') this.#current = [];
      else if (!tryStates.has(event.to)) this.#current = undefined;
      this.#current?.push(line);
    } else if (event.kind === 'parked') this.#parked(line, event.repeats > 0);
    this.#lines.push(line);
    if (this.#lines.length > linesMax) this.#lines.shift();
  }

  #parked(line: LogLine, isRepeated: boolean): void {
    if (isRepeated) this.#lines = this.#lines.filter((each) => !this.#repeated.has(each));
    this.#repeated = new Set(isRepeated ? [...(this.#current ?? []), line] : []);
    this.#current = undefined;
  }
}

/** States of a try after `connecting`, if it fails. */
const tryStates: ReadonlySet<string> = new Set(['stopping', 'parked']);

/**
 * Returns the lines of `now` after its overlap with the end of `before`. The search is linear (Knuth, Morris and Pratt),
 * because a server may write thirty thousand equal lines.
 */
export function newLines(before: readonly string[], now: readonly string[]): readonly string[] {
  const shorter = shorterMatches(now);
  /** Length of the longest prefix of `now` that ends at the current line of `before`. */
  let matched = 0;
  for (const line of before) {
    while (matched > 0 && (matched === now.length || line !== now[matched])) matched = shorter[matched - 1] as number;
    if (matched < now.length && line === now[matched]) matched++;
  }
  return now.slice(matched);
}

/** The failure function: for each prefix, the length of its longest border. */
function shorterMatches(lines: readonly string[]): number[] {
  const shorter = lines.length === 0 ? [] : [0];
  for (let i = 1, matched = 0; i < lines.length; i++) {
    while (matched > 0 && lines[i] !== lines[matched]) matched = shorter[matched - 1] as number;
    if (lines[i] === lines[matched]) matched++;
    shorter.push(matched);
  }
  return shorter;
}
