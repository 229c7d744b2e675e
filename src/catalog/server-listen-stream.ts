/**
 * Keeps one `subscriptions/listen` request open at a modern server, which otherwise reports no changes of lists or resources.
 * Not here: subscribers (subscriptions.ts), handling a notification (server-run.ts).
 *
 * Invariants: at most two requests are open. The old one is closed only after the new one is acknowledged, so no notification
 * is missed; a notification may arrive twice. If a stream ends before its session, it is reopened with exponential backoff.
 */
import type { Cancel } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { parseMember, readRpcError, resultOf } from '../session/rpc-response.js';
import type { Session } from '../session/session.js';
import { memberBytes } from '../wire/json-members.js';
import { listenMethod, RPC } from '../wire/methods.js';
import type { Answer } from '../wire/peer-interface.js';
import { SessionRetry, type SessionWork } from './session-retry.js';

/** Delay between attempts; a stream that lasted longer than `max` resets it. */
export const reopenMs = { first: 100, max: 30_000 } as const;
/** If no acknowledgement arrives within this time, the stream is treated as open. */
export const acknowledgeMsMax = 5_000;

export interface ListenParts extends SessionWork {
  readonly session: Pick<Session, 'server' | 'request' | 'closedBy'>;
  /** Lists with change notifications, as members of the filter. */
  readonly listChanges: readonly ('toolsListChanged' | 'promptsListChanged' | 'resourcesListChanged')[];
  readonly uris: () => readonly string[];
  /** Called when notifications may have been missed. */
  readonly onGap: () => void;
  readonly clean: (text: string) => string;
  readonly onProblem: (error: unknown) => void;
}

interface Stream {
  readonly filter: string;
  /** Value of `#revision` when it was opened. */
  readonly revision: number;
  readonly abort: AbortController;
  readonly openedAtMs: number;
  /** Resources that the server has accepted. Undefined: the server did not report them. */
  accepted: ReadonlySet<string> | undefined;
}

interface Waiter {
  readonly revision: number;
  readonly uri: string;
  readonly done: (error?: HostError) => void;
}

export class ServerListenStream {
  readonly #parts: ListenParts;
  #current: Stream | undefined;
  #opening: Stream | undefined;
  #cancelAcknowledge: Cancel | undefined;
  readonly #retry: SessionRetry;
  #revision = 0;
  #waiters: Waiter[] = [];
  #hadGap = false;
  #isOver = false;
  /** Error of a server that does not know `subscriptions/listen`. */
  #refused: HostError | undefined;

  constructor(parts: ListenParts) {
    this.#parts = parts;
    this.#retry = new SessionRetry(parts, reopenMs);
  }

  /** Call it when the subscribed resources may have changed. */
  update(): void {
    this.#revision++;
    this.#step();
  }

  /** Resolves when the server reports updates of this subscribed resource. */
  subscribed(uri: string): Promise<void> {
    const { session, throttle } = this.#parts;
    const refused = this.#refused ?? session.closedBy ?? throttle.refusal(session.server);
    if (refused) return Promise.reject(refused);
    return new Promise((resolve, reject) => {
      const done = (error?: HostError) => (error ? reject(error) : resolve());
      this.#waiters.push({ revision: ++this.#revision, uri, done });
      this.#step();
    });
  }

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
    stream.accepted = acceptedUris(params);
    this.#settle(stream, stream.revision);
    this.#step();
  }

  stop(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelAcknowledge?.();
    this.#retry.stop();
    const streams = [this.#current, this.#opening];
    this.#current = undefined;
    this.#opening = undefined;
    for (const stream of streams) stream?.abort.abort();
    this.#failAll(this.#parts.session.closedBy ?? ended(this.#parts.session.server));
  }

  /** Opens a stream for the present filter, unless one is open or opening. */
  #step(): void {
    if (this.#isOver || this.#refused || this.#opening || this.#retry.isSet || this.#parts.session.closedBy) return;
    const filter = this.#filter();
    if (filter === this.#current?.filter) return this.#current && this.#settle(this.#current, this.#revision);
    if (filter !== undefined) return this.#open(filter);
    this.#current?.abort.abort();
    this.#current = undefined;
  }

  #open(filter: string): void {
    const { clock, session } = this.#parts;
    const stream: Stream = {
      filter,
      revision: this.#revision,
      abort: new AbortController(),
      openedAtMs: clock.nowMs(),
      accepted: undefined,
    };
    this.#opening = stream;
    this.#cancelAcknowledge = clock.at(clock.nowMs() + acknowledgeMsMax, () => this.acknowledged(undefined));
    const limits = { deadlineAtMs: Number.POSITIVE_INFINITY, signal: stream.abort.signal, isLongLived: true };
    this.#retry
      .send(() => session.request(listenMethod, `{"notifications":${filter}}`, limits))
      .then(
        (answer) => this.#ended(stream, answer),
        (error: unknown) => this.#ended(stream, error),
      );
  }

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
    if (wasOpening && error) for (const { done } of this.#takeWaiters(stream.revision)) done(error);
    if (this.#isOver || this.#refused) return;
    if (clock.nowMs() - stream.openedAtMs > reopenMs.max) this.#retry.succeeded();
    if (!this.#retry.isSet) this.#retry.retry(() => this.#step());
  }

  /** Undefined if the stream ended with a result: the server closed it normally. */
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
        // The server announces a capability that it lacks: a retry would fail again.
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

  #settle({ accepted }: Stream, revision: number): void {
    for (const { uri, done } of this.#takeWaiters(revision))
      done(!accepted || accepted.has(uri) ? undefined : notAccepted(this.#parts.session.server));
  }

  #failAll(error: HostError): void {
    for (const { done } of this.#takeWaiters(this.#revision)) done(error);
  }

  #takeWaiters(revision: number): readonly Waiter[] {
    const due = this.#waiters.filter((waiter) => waiter.revision <= revision);
    this.#waiters = this.#waiters.filter((waiter) => waiter.revision > revision);
    return due;
  }
}

function acceptedUris(params: Buffer | undefined): ReadonlySet<string> | undefined {
  const notifications = params && memberBytes(params, 'notifications');
  if (!notifications) return undefined;
  const uris = parseMember(notifications, 'resourceSubscriptions') ?? [];
  return Array.isArray(uris) ? new Set(uris.filter((uri) => typeof uri === 'string')) : undefined;
}

const notAccepted = (server: string): HostError =>
  new HostError('invalid_request', `server '${server}' does not report updates of this resource`, {
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
