/**
 * The shell around one server's state machine: holds the state, performs the effects, feeds back what happened, and lets
 * callers wait for a connection.
 * Not here: every decision about the state (server-state.ts), one attempt to connect (run.ts), what refused callers are told
 * (refusals.ts), what the world is told (narrator.ts), who needs the server at all (registry.ts).
 *
 * Invariants: events are taken one at a time, in order, each in the tick it arrives in; there is at most one run, one timer
 * of the state and one health check; listeners are told after the fact, so whatever they call back finds a settled state.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Cancel, Clock } from '../kernel/clock.js';
import { type Deferred, deferred } from '../kernel/deferred.js';
import { type HostError, withoutStack } from '../kernel/errors.js';
import type { Freeze } from './correlated-failures.js';
import { HealthCheck } from './health-check.js';
import { Narrator } from './narrator.js';
import { type Connection, classifyFailure } from './ports.js';
import { cancelled, notYet, type Refused, refusalOf, replaced, tooManyWait, unresponsive } from './refusals.js';
import { defaultPlan, emptyLedger, type Ledger, type RestartPlan, restartsInWindow } from './restart-plan.js';
import { Run } from './run.js';
import { type Effect, initialState, type ServerEvent, type ServerState, step } from './server-state.js';
import { type Snapshot, type SnapshotFacts, snapshotOf } from './snapshot.js';
import { isAtRest, isOrderly, wakesAtMs } from './state-facts.js';
import type { SupervisorOptions } from './supervisor-options.js';
import { Waiters } from './waiters.js';

export interface Acquired<C> {
  readonly connection: C;
  /** Hand it back with every report about this connection. */
  readonly run: number;
  /** When it was opened, on the host's clock. */
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
  /** There only while somebody waits. */
  #waiters: Waiters<Acquired<C>> | undefined;
  /** Made when it is first suspect. */
  #check: HealthCheck<C> | undefined;
  readonly #narrator: Narrator;
  /** There only while events are taken. */
  #queue: Queued[] | undefined;
  #isDisposed = false;
  #isReplaced = false;
  #state: ServerState;
  #run: Run<C> | undefined;
  #acquired: Acquired<C> | undefined;
  #cancelTimer: Cancel | undefined;
  #stopping: Deferred | undefined;
  /** A token came while this run was connecting, up or closing: worth one more try if it ends for want of a token. */
  #newTokenRun: number | undefined;
  /** That one more try. It gets none itself, or a token that is renewed in vain each time would make a loop. */
  #graceRun: number | undefined;
  #lastError: { readonly error: HostError; readonly atMs: number } | undefined;
  /** Why an earlier host had parked it; shown until there is something newer. */
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
    this.#narrator = new Narrator(options);
  }

  // --- for callers

  /** The connection, if it can be used this instant. */
  ready(): Acquired<C> | undefined {
    const acquired = this.#acquired;
    return acquired && this.#state.kind === 'ready' && !acquired.connection.closedBy ? acquired : undefined;
  }

  /**
   * A connection that is ready, now or soon; otherwise a HostError that says `not_executed`. `waitMs`: how soon; a caller is
   * better told that a server is slow than kept waiting.
   */
  acquire(deadlineAtMs: number, signal?: CancelSignal, waitMs = this.#options.waitMs ?? 5_000): Promise<Acquired<C>> {
    const acquired = this.#acquired;
    // It may be over although nobody has told us yet.
    const closedBy = acquired?.connection.closedBy;
    if (acquired && closedBy) this.lost(acquired.run, closedBy);
    else if (acquired && this.#state.kind === 'ready') return Promise.resolve(acquired);
    if (signal?.aborted) return Promise.reject(cancelled(this.name));
    this.#on({ kind: 'wanted' });
    const refusal = this.refusal();
    if (refusal) return Promise.reject(refusal);
    if (this.#state.kind === 'suspect' && acquired) this.#verify(acquired);
    this.#waiters ??= this.#waitingRoom();
    return this.#waiters.wait(Math.min(this.#clock.nowMs() + waitMs, deadlineAtMs), signal);
  }

  /** Why nobody can have a connection now; undefined when it is ready or may be soon. Asking wakes nothing. */
  refusal(): HostError | undefined {
    const refusal = refusalOf(this.#state, this.#refused());
    return refusal && this.#isReplaced ? replaced(this.name) : refusal;
  }

  /** The connection of this run is of no more use. Of an older run: nothing happens. */
  lost(run: number, error: HostError): void {
    this.#on({ kind: 'lost', run, error });
  }

  /**
   * A call was answered with a result, be it one that says `isError`: this is what proves a run. A JSON-RPC error is no such
   * answer, only a sign of life: tell it as `answered`.
   */
  succeeded(run: number, atMs: number): void {
    const state = this.#state;
    if (run !== state.run) return;
    this.#lastSuccessAtMs = atMs;
    // Nothing more to learn, on the path of every call.
    if (state.kind === 'ready' && state.wasCalled) return;
    this.#on({ kind: 'call_succeeded', run });
  }

  /** It owes an answer and gave no sign of life: whoever wants it next waits for a check. */
  missed(run: number): void {
    this.#on({ kind: 'missed', run });
  }

  /** It gave a sign of life, whatever it said. */
  answered(run: number): void {
    // On the path of calls: most of the time nobody doubted it.
    if (this.#state.kind === 'suspect') this.#on({ kind: 'answered', run });
  }

  /** It is to run, called or not. Forgives nothing. */
  begin(): void {
    this.#on({ kind: 'wanted' });
  }

  // --- for operators

  /** Forgives everything. */
  start(): void {
    this.#on({ kind: 'start' });
  }

  /** Resolves when nothing of the server runs any more. */
  stop(): Promise<void> {
    return this.#onAndStopped('stop');
  }

  /** Resolves when the old run is gone; a lazy server then waits to be wanted. */
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

  /** Nobody has needed it for long enough. */
  idle(): void {
    if (this.#waiting === 0) this.#on({ kind: 'idle' });
  }

  /** No start is over yet. What has a history has been started before. */
  get isFirstStart(): boolean {
    return this.#state.run <= 1 && this.#state.ledger === emptyLedger;
  }

  /** What is held against it. */
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

  /** What calls would be sent on now; one that is over is not there, even if nobody has told us yet. */
  get current(): Acquired<C> | undefined {
    return this.#acquired?.connection.closedBy ? undefined : this.#acquired;
  }

  /**
   * Stops it for good. Resolves when nothing of it runs and no timer is left. `isReplaced`: another one takes its name, so
   * that whoever waits for it should ask again.
   */
  dispose(isReplaced = false): Promise<void> {
    this.#isReplaced = isReplaced;
    this.#on({ kind: 'stop' });
    this.#isDisposed = true;
    this.#options.guard.forget(this.name);
    return this.#stopped();
  }

  // --- one event at a time

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
      this.#narrator.tell();
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
    for (const effect of effects) this.#perform(effect);
    if (after !== before) this.#changed(before, after, nowMs);
  }

  /** An error in the machine's words. What happened to the current run is remembered on the way. */
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
    return kind === 'lost' ? { kind, run, failure, reason } : { kind, run, failure, reason, isFree };
  }

  #perform(effect: Effect): void {
    switch (effect.do) {
      case 'open':
        this.#open(effect.run);
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

  /** What the timer holds is kept for as long as the server rests: nothing but the supervisor. */
  #arm(atMs: number): void {
    this.#cancelTimer = this.#clock.at(atMs, () => {
      this.#cancelTimer = undefined;
      const dueAtMs = wakesAtMs(this.#state);
      if (dueAtMs !== undefined) this.#noteFreeze(this.#options.guard.woke(this.name, dueAtMs));
      this.#on({ kind: 'woke' });
    });
  }

  #open(number: number): void {
    const run = new Run<C>(this.name, {
      opened: (connection) => {
        this.#acquired = { connection, run: number, sinceMs: this.#clock.nowMs() };
        this.#on({ kind: 'opened', run: number });
      },
      failed: (error) => this.#on({ kind: 'open_failed', run: number, error }),
      lost: (error) => this.lost(number, error),
      closed: () => this.#on({ kind: 'closed', run: number }),
      closeFailed: (error) => {
        this.#narrator.note({ kind: 'close_failed', run: number, error }, this.#clock.nowMs());
        if (!this.#queue) this.#narrator.tell();
      },
    });
    this.#run = run;
    run.open(number, this.#options.gate, this.#options.connect);
  }

  // --- after a change

  #changed(before: ServerState, after: ServerState, nowMs: number): void {
    const restarts = restartsInWindow(after.ledger, nowMs, this.#plan);
    const isProven = this.#narrator.changed(before, after, nowMs, restarts);
    if (after.ledger !== before.ledger) this.#options.history?.remember(after.ledger);
    if (isProven) this.#options.guard.proven(this.name);
    if (before.kind === after.kind) return;
    if (after.kind !== 'suspect') this.#check?.end();
    if (after.kind !== 'ready' && after.kind !== 'suspect') this.#acquired = undefined;
    // What has ended is not kept: a server at rest costs as little as it can.
    if (isAtRest(after.kind) || after.kind === 'backing_off') this.#run = undefined;
    if (isAtRest(after.kind) && this.#lastError) {
      this.#lastError = { error: withoutStack(this.#lastError.error), atMs: this.#lastError.atMs };
    }
    this.#tellGuard(after);
    this.#settle(after);
  }

  #tellGuard({ kind }: ServerState): void {
    const { guard } = this.#options;
    // Forgotten already; another one may have the name.
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
      // It came to rest while somebody waited: they still want it.
      else if (state.kind === 'registered') this.#on({ kind: 'wanted' });
    }
    if (this.#waiting === 0) this.#waiters = undefined;
    if (state.kind === 'auth_required' && state.run === this.#newTokenRun && state.run !== this.#graceRun) {
      this.#graceRun = state.run + 1;
      this.#on({ kind: 'token_changed' });
    }
  }

  #noteFreeze(freeze: Freeze | undefined): void {
    if (freeze) this.#narrator.note({ kind: 'freeze', run: this.#state.run, ...freeze }, this.#clock.nowMs());
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

  #waitingRoom(): Waiters<Acquired<C>> {
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
