/**
 * Keeps one `subscriptions/listen` request open on one session of a modern server, which tells nothing of its own accord
 * otherwise: changes of lists, and of the resources that somebody wants to hear of.
 * Not here: who wants to hear of what (subscriptions.ts), what a notification means (server-runs.ts).
 *
 * Invariants: at most two requests are open, and two only while a new one takes the place of the old, which goes when the
 * new one is acknowledged: no change is missed in between, and one may be told twice; a stream that ends while its session
 * lives is opened again, after a wait that doubles for as long as streams do not last.
 */
import type { Cancel, Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { parseMember, readRpcError, resultOf } from '../session/rpc-response.js';
import type { Session } from '../session/session.js';
import { memberBytes } from '../wire/json-members.js';
import type { Answer } from '../wire/peer-interface.js';
import { listenMethod, RPC } from '../wire/rpc-codes.js';

/** Between two attempts; one that lasted longer than the longest wait is forgiven. */
export const reopenMs = { first: 100, max: 30_000 } as const;
/** A server that has not acknowledged by then is taken to listen all the same. */
export const acknowledgeMsMax = 5_000;

export interface ListenParts {
  readonly clock: Clock;
  readonly session: Pick<Session, 'server' | 'request' | 'closedBy'>;
  /** Lists whose changes it offers to tell of, as members of the filter. */
  readonly listChanges: readonly ('toolsListChanged' | 'promptsListChanged' | 'resourcesListChanged')[];
  /** URIs of resources that somebody wants to hear of, now. */
  readonly uris: () => readonly string[];
  /** Nobody listened for a while: whatever could have changed may have. */
  readonly onGap: () => void;
  readonly clean: (text: string) => string;
  readonly onProblem: (error: unknown) => void;
}

interface Stream {
  readonly filter: string;
  /** What was wanted when it was opened. */
  readonly wants: number;
  readonly abort: AbortController;
  readonly openedAtMs: number;
  /** Resources that the server said it will tell of; undefined when it did not say. */
  kept: ReadonlySet<string> | undefined;
}

interface Waiter {
  readonly wants: number;
  readonly uri: string;
  readonly done: (error?: HostError) => void;
}

export class ListenStream {
  readonly #parts: ListenParts;
  #current: Stream | undefined;
  #opening: Stream | undefined;
  #cancelAcknowledge: Cancel | undefined;
  #cancelRetry: Cancel | undefined;
  #delayMs: number = reopenMs.first;
  /** Counts changes of what is wanted. */
  #wants = 0;
  #waiters: Waiter[] = [];
  #hadGap = false;
  #isOver = false;
  /** The server said that it knows no such request. */
  #refused: HostError | undefined;

  constructor(parts: ListenParts) {
    this.#parts = parts;
  }

  /** What is wanted may be another now; nobody waits for it. */
  update(): void {
    this.#wants++;
    this.#step();
  }

  /** Resolves when changes of this resource, which is among those wanted, will be told of. */
  wanted(uri: string): Promise<void> {
    const refused = this.#refused ?? this.#parts.session.closedBy;
    if (refused) return Promise.reject(refused);
    return new Promise((resolve, reject) => {
      const done = (error?: HostError) => (error ? reject(error) : resolve());
      this.#waiters.push({ wants: ++this.#wants, uri, done });
      this.#step();
    });
  }

  /** The server acknowledged the newest request. */
  acknowledged(params: Buffer | undefined): void {
    const stream = this.#opening;
    if (!stream) return;
    this.#cancelAcknowledge?.();
    this.#opening = undefined;
    const before = this.#current;
    this.#current = stream;
    before?.abort.abort();
    if (this.#hadGap) {
      this.#hadGap = false;
      this.#parts.onGap();
    }
    stream.kept = honoured(params);
    this.#settle(stream, stream.wants);
    this.#step();
  }

  /** Nothing is heard any more. */
  stop(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelAcknowledge?.();
    this.#cancelRetry?.();
    const streams = [this.#current, this.#opening];
    this.#current = undefined;
    this.#opening = undefined;
    for (const stream of streams) stream?.abort.abort();
    this.#failAll(this.#parts.session.closedBy ?? ended(this.#parts.session.server));
  }

  /** Opens what is wanted, unless it is open or about to be. */
  #step(): void {
    if (this.#isOver || this.#refused || this.#opening || this.#cancelRetry || this.#parts.session.closedBy) return;
    const filter = this.#filter();
    if (filter === this.#current?.filter) return this.#current && this.#settle(this.#current, this.#wants);
    if (filter !== undefined) return this.#open(filter);
    this.#current?.abort.abort();
    this.#current = undefined;
  }

  #open(filter: string): void {
    const { clock, session } = this.#parts;
    const stream: Stream = {
      filter,
      wants: this.#wants,
      abort: new AbortController(),
      openedAtMs: clock.nowMs(),
      kept: undefined,
    };
    this.#opening = stream;
    this.#cancelAcknowledge = clock.at(clock.nowMs() + acknowledgeMsMax, () => this.acknowledged(undefined));
    session
      .request(listenMethod, `{"notifications":${filter}}`, {
        deadlineAtMs: Number.POSITIVE_INFINITY,
        signal: stream.abort.signal,
        isStanding: true,
      })
      .then(
        (answer) => this.#ended(stream, answer),
        (error: unknown) => this.#ended(stream, error),
      );
  }

  /** `outcome`: an answer of the server, or why there will be none. */
  #ended(stream: Stream, outcome: Answer | unknown): void {
    const { clock, session } = this.#parts;
    if (stream.abort.signal.aborted) return;
    const wasOpening = stream === this.#opening;
    if (wasOpening) {
      this.#cancelAcknowledge?.();
      this.#opening = undefined;
    } else if (stream === this.#current) this.#current = undefined;
    if (!this.#current) this.#hadGap = true;
    const error = this.#errorOf(outcome);
    if (session.closedBy) return this.#failAll(session.closedBy);
    if (wasOpening && error) for (const { done } of this.#due(stream.wants)) done(error);
    if (this.#isOver || this.#refused) return;
    if (clock.nowMs() - stream.openedAtMs > reopenMs.max) this.#delayMs = reopenMs.first;
    this.#cancelRetry ??= clock.at(clock.nowMs() + this.#delayMs, () => {
      this.#cancelRetry = undefined;
      this.#step();
    });
    this.#delayMs = Math.min(2 * this.#delayMs, reopenMs.max);
  }

  /** A result is an end in good order. */
  #errorOf(outcome: Answer | unknown): HostError | undefined {
    const { session, clean, onProblem } = this.#parts;
    if (isHostError(outcome)) return outcome;
    const answer = outcome as Answer;
    if (answer.kind !== 'error') return undefined;
    try {
      resultOf(answer, session.server, listenMethod, clean);
      return undefined;
    } catch (error) {
      if (!isHostError(error)) throw error;
      if (readRpcError(answer.bytes).code === RPC.methodNotFound) {
        // It offers what it does not have. Asked again it would say the same.
        this.#refused = error;
        this.#failAll(error);
        onProblem(error);
      }
      return error;
    }
  }

  #filter(): string | undefined {
    const { listChanges, uris } = this.#parts;
    const resources = [...uris()].sort();
    if (listChanges.length === 0 && resources.length === 0) return undefined;
    const members = Object.fromEntries(listChanges.map((name) => [name, true]));
    return JSON.stringify({ ...members, ...(resources.length === 0 ? {} : { resourceSubscriptions: resources }) });
  }

  /** Whoever waited for no more than `wants` is told what became of it. */
  #settle({ kept }: Stream, wants: number): void {
    for (const { uri, done } of this.#due(wants))
      done(!kept || kept.has(uri) ? undefined : notHonoured(this.#parts.session.server));
  }

  #failAll(error: HostError): void {
    for (const { done } of this.#due(this.#wants)) done(error);
  }

  #due(wants: number): readonly Waiter[] {
    const due = this.#waiters.filter((waiter) => waiter.wants <= wants);
    this.#waiters = this.#waiters.filter((waiter) => waiter.wants > wants);
    return due;
  }
}

/** Which resources the server will tell of; undefined when it does not say. */
function honoured(params: Buffer | undefined): ReadonlySet<string> | undefined {
  const notifications = params && memberBytes(params, 'notifications');
  if (!notifications) return undefined;
  const uris = parseMember(notifications, 'resourceSubscriptions') ?? [];
  return Array.isArray(uris) ? new Set(uris.filter((uri) => typeof uri === 'string')) : undefined;
}

const notHonoured = (server: string): HostError =>
  new HostError('invalid_request', `server '${server}' does not tell of updates of this resource`, {
    server,
    reason: 'not_subscribed',
    hint: 'read the resource again when it is needed',
  });

const ended = (server: string): HostError =>
  new HostError('transport', `server '${server}': its run ended before the subscription was acknowledged`, {
    server,
    reason: 'closed',
    hint: 'subscribe again',
  });
