/**
 * Runs the state machine of one server: performs effects, feeds results back, and lets callers wait for a connection.
 * Not here: state decisions (server-state.ts), one run (run.ts), errors for callers (refusals.ts), events
 * (supervisor-events.ts), leases (registry.ts).
 *
 * Invariants: events are handled one at a time, in order, in the tick they arrive. There is at most one run, one state timer
 * and one health check. Listeners run after the change, so calls from a listener find a settled state.
 */
import { openingPauseMsMax } from '../kernel/backoff.js';
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Cancel, Clock } from '../kernel/clock.js';
import { type Deferred, deferred } from '../kernel/deferred.js';
import { type HostError, withoutStack } from '../kernel/errors.js';
import type { Freeze } from './correlated-failures.js';
import { type Connection, classifyFailure, type SupervisorOptions } from './ports.js';
import { cancelled, notYet, type Refused, refusalOf, replaced, tooManyWait, unresponsive } from './refusals.js';
import { defaultPlan, emptyLedger, type Ledger, type RestartPlan, restartsInWindow } from './restart-plan.js';
import { HealthCheck, Run } from './run.js';
import {
  type Effect,
  initialState,
  isAtRest,
  isOrderly,
  type ServerEvent,
  type ServerState,
  step,
  wakesAtMs,
} from './server-state.js';
import { type Snapshot, type SnapshotFacts, snapshotOf } from './snapshot.js';
import { EventQueue } from './supervisor-events.js';
import { Waiters } from './waiters.js';

export interface Acquired<C> {
  readonly connection: C;
  /** Pass it back with every report about this connection. */
  readonly run: number;
  /** On the host's clock. */
  readonly sinceMs: number;
}

type RunEvent = Extract<ServerEvent, { run: number }>;
type Plain = Exclude<ServerEvent, { kind: 'open_failed' | 'lost' }>;
type Queued = Plain | { readonly kind: 'open_failed' | 'lost'; readonly run: number; readonly error: HostError };

export class Supervisor<C extends Connection> {
  readonly name: string;
  readonly #options: SupervisorOptions<C>;
  readonly #clock: Clock;
  readonly #plan: RestartPlan;
  /** Set only while callers wait. */
  #waiters: Waiters<Acquired<C>> | undefined;
  /** Created when the server is first suspect. */
  #check: HealthCheck<C> | undefined;
  readonly #events: EventQueue;
  /** Set only while events are handled. */
  #queue: Queued[] | undefined;
  #isDisposed = false;
  #isReplaced = false;
  #state: ServerState;
  #run: Run<C> | undefined;
  #acquired: Acquired<C> | undefined;
  #cancelTimer: Cancel | undefined;
  #stopping: Deferred | undefined;
  /** Run in which a new token arrived. If it ends with `needs_reauth`, one more run is tried. */
  #newTokenRun: number | undefined;
  /** Number of that extra run. No further extra run follows it, because useless renewals would loop. */
  #graceRun: number | undefined;
  #lastError: { readonly error: HostError; readonly atMs: number } | undefined;
  /** Reason why an earlier host parked the server; shown until a newer error occurs. */
  readonly #earlierError: SnapshotFacts['lastError'];
  #lastSuccessAtMs: number | undefined;

  constructor(options: SupervisorOptions<C>) {
    const { name, clock, plan = defaultPlan, isEnabled = true } = options;
    const { ledger = emptyLedger } = options.history ?? {};
    this.name = name;
    this.#options = options;
    this.#clock = clock;
    this.#plan = plan;
    this.#state = initialState(clock.nowMs(), isEnabled, ledger);
    this.#earlierError = ledger.parked && { error: ledger.parked.reason, atMs: ledger.parked.atMs };
    this.#events = new EventQueue(name, options.events);
  }

  // --- for callers

  /** The connection, if it is usable right now. */
  ready(): Acquired<C> | undefined {
    const acquired = this.#acquired;
    return acquired && this.#state.kind === 'ready' && !acquired.connection.closedBy ? acquired : undefined;
  }

  /** Resolves with a ready connection within `waitMs`, or rejects with a HostError that is `not_executed`. */
  acquire(deadlineAtMs: number, signal?: CancelSignal, waitMs = this.#options.waitMs ?? 5_000): Promise<Acquired<C>> {
    const acquired = this.#acquired;
    // The connection may have ended before its close event arrives.
    const closedBy = acquired?.connection.closedBy;
    if (acquired && closedBy) this.lost(acquired.run, closedBy);
    else if (acquired && this.#state.kind === 'ready') return Promise.resolve(acquired);
    if (signal?.aborted) return Promise.reject(cancelled(this.name));
    this.#on({ kind: 'wanted' });
    const refusal = this.refusal();
    if (refusal) return Promise.reject(refusal);
    if (this.#state.kind === 'suspect' && acquired) this.#verify(acquired);
    this.#waiters ??= this.#createWaiters();
    return this.#waiters.wait(Math.min(this.#clock.nowMs() + waitMs, deadlineAtMs), signal);
  }

  /** The error that explains why no connection is available. Undefined: one is available, or may be soon. Starts nothing. */
  refusal(): HostError | undefined {
    const refusal = refusalOf(this.#state, this.#refused());
    return refusal && this.#isReplaced ? replaced(this.name) : refusal;
  }

  /** The connection of this run is lost. Ignored for an older run. */
  lost(run: number, error: HostError): void {
    this.#on({ kind: 'lost', run, error });
  }

  /** Reports a call with a result, also one with `isError`. A JSON-RPC error only shows life: report it with `answered`. */
  succeeded(run: number, atMs: number): void {
    const state = this.#state;
    if (run !== state.run) return;
    this.#lastSuccessAtMs = atMs;
    // Fast path: a call of this run has succeeded before.
    if (state.kind === 'ready' && state.wasCalled) return;
    this.#on({ kind: 'call_succeeded', run });
  }

  /** A request got no answer and the server was silent: the next caller waits for a health check. */
  missed(run: number): void {
    this.#on({ kind: 'missed', run });
  }

  /** Any message of the server arrived. */
  answered(run: number): void {
    // Every call passes here, and most servers are not suspect.
    if (this.#state.kind === 'suspect') this.#on({ kind: 'answered', run });
  }

  /** Starts the server without a call. The ledger is not emptied. */
  begin(): void {
    this.#on({ kind: 'wanted' });
  }

  // --- for operators

  start(): void {
    this.#on({ kind: 'start' });
  }

  /** Resolves when the run of the server is closed. */
  stop(): Promise<void> {
    return this.#onAndStopped('stop');
  }

  /** Resolves when the old run is closed; a lazy server then waits for its next call. */
  reload(): Promise<void> {
    return this.#onAndStopped('reload');
  }

  disable(): Promise<void> {
    return this.#onAndStopped('disable');
  }

  enable(): void {
    this.#on({ kind: 'enable' });
  }

  tokenChanged(): void {
    this.#newTokenRun = this.#state.run;
    this.#on({ kind: 'token_changed' });
  }

  /** The keep-alive time of the last lease is over. */
  idle(): void {
    if (this.#waiting === 0) this.#on({ kind: 'idle' });
  }

  /** True: the server was disposed of, and another server takes its name. */
  get isReplaced(): boolean {
    return this.#isReplaced;
  }

  /** True: no start has ended yet. A stored history counts as an earlier start. */
  get isFirstStart(): boolean {
    return this.#state.run <= 1 && this.#state.ledger === emptyLedger;
  }

  get ledger(): Ledger {
    return this.#state.ledger;
  }

  snapshot(): Snapshot {
    return snapshotOf(this.#state, {
      server: this.name,
      restarts: restartsInWindow(this.#state.ledger, this.#clock.nowMs(), this.#plan),
      waiting: this.#waiting,
      lastError: this.#lastError ?? this.#earlierError,
      lastSuccessAtMs: this.#lastSuccessAtMs,
    });
  }

  /** The open connection; undefined once it has ended, also before its close event. */
  get current(): Acquired<C> | undefined {
    return this.#acquired?.connection.closedBy ? undefined : this.#acquired;
  }

  /** Stops the server for good, and resolves as `stop` does. `isReplaced`: another server takes the name, so callers should retry. */
  dispose(isReplaced = false): Promise<void> {
    this.#isReplaced = isReplaced;
    this.#on({ kind: 'stop' });
    this.#isDisposed = true;
    this.#options.guard.forget(this.name);
    return this.#stopped();
  }

  #on(event: Queued): void {
    if (this.#isDisposed && !('run' in event)) return;
    if (this.#queue) {
      this.#queue.push(event);
      return;
    }
    const queue = [event];
    this.#queue = queue;
    try {
      for (let next = queue.shift(); next; next = queue.shift()) this.#take(next);
    } finally {
      this.#queue = undefined;
      this.#events.emit();
    }
  }

  #take(queued: Queued): void {
    const before = this.#state;
    const event = 'error' in queued ? this.#failure(queued) : queued;
    const nowMs = this.#clock.nowMs();
    const { random, guard, isLazy, isOneShot } = this.#options;
    const context = { nowMs, plan: this.#plan, random, isFrozen: guard.isFrozen, isLazy, isOneShot };
    const [after, effects] = step(before, event, context);
    this.#state = after;
    // A start by an operator has an empty ledger: it is no restart.
    const isRestart = before.kind === 'backing_off' || after.ledger !== emptyLedger;
    for (const effect of effects) this.#perform(effect, isRestart);
    if (after !== before) this.#changed(before, after, nowMs);
  }

  /** Translates an error into an event of the state machine, and records it as the last error of the current run. */
  #failure({ kind, run, error }: Extract<Queued, { error: HostError }>): RunEvent {
    const { name } = this;
    const failure = classifyFailure(error);
    const isFree = kind === 'open_failed' && this.isFirstStart && this.#options.isFirstStartFree === true;
    const counts = kind === 'lost' ? this.#acquired?.run === run : this.#state.kind === 'connecting';
    if (counts && run === this.#state.run) {
      this.#lastError = { error, atMs: this.#clock.nowMs() };
      if (failure === 'transient' && !isFree) this.#noteFreeze(this.#options.guard.failed(name));
    }
    const reason = { code: error.code, message: error.message };
    if (kind === 'lost') return { kind, run, failure, reason };
    const { retryAfterMs = 0 } = error.details;
    const pauseMs = error.code === 'overloaded' ? Math.min(retryAfterMs, openingPauseMsMax) : undefined;
    return { kind, run, failure, reason, isFree, pauseMs };
  }

  #perform(effect: Effect, isRestart: boolean): void {
    switch (effect.do) {
      case 'open':
        this.#open(effect.run, isRestart);
        break;
      case 'close':
        this.#run?.close(isOrderly(this.#state));
        break;
      case 'arm':
        this.#cancelTimer?.();
        this.#arm(effect.atMs);
        break;
      case 'disarm':
        this.#cancelTimer?.();
        this.#cancelTimer = undefined;
        break;
      default:
        effect satisfies never;
    }
  }

  /** The closure captures only the supervisor, because thousands of idle servers may have one. */
  #arm(atMs: number): void {
    this.#cancelTimer = this.#clock.at(atMs, () => {
      this.#cancelTimer = undefined;
      const dueAtMs = wakesAtMs(this.#state);
      if (dueAtMs !== undefined) this.#noteFreeze(this.#options.guard.woke(this.name, dueAtMs));
      this.#on({ kind: 'woke' });
    });
  }

  #open(number: number, isRestart: boolean): void {
    const run = new Run<C>(this.name, {
      opened: (connection) => {
        this.#acquired = { connection, run: number, sinceMs: this.#clock.nowMs() };
        this.#on({ kind: 'opened', run: number });
      },
      failed: (error) => this.#on({ kind: 'open_failed', run: number, error }),
      lost: (error) => this.lost(number, error),
      closed: () => this.#on({ kind: 'closed', run: number }),
      closeFailed: (error) => {
        this.#events.add({ kind: 'close_failed', run: number, error }, this.#clock.nowMs());
        if (!this.#queue) this.#events.emit();
      },
    });
    this.#run = run;
    run.open(number, this.#options.gate, this.#options.connect, isRestart);
  }

  #changed(before: ServerState, after: ServerState, nowMs: number): void {
    const restarts = restartsInWindow(after.ledger, nowMs, this.#plan);
    const isProven = this.#events.changed(before, after, nowMs, restarts);
    if (after.ledger !== before.ledger) this.#options.history?.remember(after.ledger);
    if (isProven) this.#options.guard.proven(this.name);
    if (before.kind === after.kind) return;
    if (after.kind !== 'suspect') this.#check?.end();
    if (after.kind !== 'ready' && after.kind !== 'suspect') this.#acquired = undefined;
    // An ended run is dropped, so that an idle server needs little memory.
    if (isAtRest(after.kind) || after.kind === 'backing_off') this.#run = undefined;
    if (isAtRest(after.kind) && this.#lastError) {
      this.#lastError = { error: withoutStack(this.#lastError.error), atMs: this.#lastError.atMs };
    }
    this.#updateGuard(after);
    this.#settle(after);
  }

  #updateGuard({ kind }: ServerState): void {
    const { guard } = this.#options;
    // `dispose` removed the server from the guard; another one may have the name.
    if (this.#isDisposed) return;
    if (kind === 'connecting') guard.entered(this.name);
    else if (isAtRest(kind)) guard.left(this.name);
  }

  #settle(state: ServerState): void {
    if (state.kind !== 'stopping') {
      this.#stopping?.resolve();
      this.#stopping = undefined;
    }
    if (state.kind === 'ready' && this.#acquired) this.#waiters?.resolveAll(this.#acquired);
    if (this.#waiting > 0) {
      const refusal = this.refusal();
      if (refusal) this.#waiters?.rejectAll(refusal);
      // The server became idle while callers still wait.
      else if (state.kind === 'registered') this.#on({ kind: 'wanted' });
    }
    if (this.#waiting === 0) this.#waiters = undefined;
    if (state.kind === 'auth_required' && state.run === this.#newTokenRun && state.run !== this.#graceRun) {
      this.#graceRun = state.run + 1;
      this.#on({ kind: 'token_changed' });
    }
  }

  #noteFreeze(freeze: Freeze | undefined): void {
    if (freeze) this.#events.add({ kind: 'freeze', run: this.#state.run, ...freeze }, this.#clock.nowMs());
  }

  #verify({ connection, run }: Acquired<C>): void {
    const { verify, verifyMs = 5_000 } = this.#options;
    this.#check ??= new HealthCheck(this.#clock, verify, verifyMs);
    this.#check.begin(connection, (isAlive) =>
      isAlive || connection.isAtWork ? this.answered(run) : this.lost(run, unresponsive(this.#refused())),
    );
  }

  #onAndStopped(kind: 'stop' | 'reload' | 'disable'): Promise<void> {
    this.#on({ kind });
    return this.#stopped();
  }

  #stopped(): Promise<void> {
    if (this.#state.kind !== 'stopping') return Promise.resolve();
    this.#stopping ??= deferred();
    return this.#stopping.promise;
  }

  get #waiting(): number {
    return this.#waiters?.size ?? 0;
  }

  #createWaiters(): Waiters<Acquired<C>> {
    const { waitersMax = 16_384 } = this.#options;
    return new Waiters(this.#clock, waitersMax, {
      late: () => notYet(this.#state, this.#refused()),
      cancelled: () => cancelled(this.name),
      full: () => tooManyWait(this.name, waitersMax),
    });
  }

  #refused(): Refused {
    const { isOneShot, problem } = this.#options;
    return { server: this.name, nowMs: this.#clock.nowMs(), lastError: this.#lastError?.error, isOneShot, problem };
  }
}
