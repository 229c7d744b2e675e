/**
 * Ends a connection that the server refuses as a whole, because the server now speaks another era or no longer knows the
 * endpoint. Some replicas behind the URL may not have changed yet, so calls that were sent before get some time.
 * Not here: detecting the refusal (eras/checked-requests.ts), the next connection (supervisor/).
 * Invariant: the connection ends when the server works on no earlier call, or after `drainMsMax`.
 */
import type { Cancel, Clock } from '../kernel/clock.js';
import { type Deferred, deferred } from '../kernel/deferred.js';
import { HostError } from '../kernel/errors.js';
import type { Peer } from '../wire/peer.js';

/** The same time as for a server that is stopped. */
const drainMsMax = 5_000;
/** Interval of the checks for earlier calls. */
const lookIntervalMs = 1_000;

interface EndingParts {
  readonly server: string;
  readonly peer: Peer;
  readonly clock: Clock;
  /**
   * Called at each check, to keep the server `suspect`: an answer to an earlier call does not prove that the next call would
   * be accepted.
   */
  readonly missed: () => void;
}

interface Begun extends Deferred {
  /** Requests with a smaller id are still awaited. */
  readonly beforeId: number;
  readonly untilMs: number;
}

export class Ending {
  readonly #parts: EndingParts;
  #begun: Begun | undefined;
  #cancel: Cancel = () => {};

  constructor(parts: EndingParts) {
    this.#parts = parts;
  }

  /** Resolves at the end of the connection. Undefined: the connection is not ending. */
  get ended(): Promise<void> | undefined {
    return this.#begun?.promise;
  }

  begin(): Promise<void> {
    const { peer, clock } = this.#parts;
    this.#begun ??= { ...deferred(), beforeId: peer.nextId, untilMs: clock.nowMs() + drainMsMax };
    this.#look(this.#begun);
    return this.#begun.promise;
  }

  /** Call it when the connection is closed. */
  close(): void {
    this.#cancel();
    this.#begun?.resolve();
  }

  #look(begun: Begun): void {
    const { server, peer, clock, missed } = this.#parts;
    this.#cancel();
    const nowMs = clock.nowMs();
    if (!peer.closedBy && nowMs < begun.untilMs && peer.pending.isAtWorkBefore(begun.beforeId)) {
      missed();
      this.#cancel = clock.at(Math.min(nowMs + lookIntervalMs, begun.untilMs), () => this.#look(begun));
      return;
    }
    const error = new HostError('transport', `server '${server}' no longer accepts requests on this connection`, {
      server,
      reason: 'protocol_refused',
      hint: 'a new connection is opened; if this repeats, check whether several versions of the server are running',
    });
    if (!peer.closedBy) void peer.abandon(error);
    begun.resolve();
  }
}
