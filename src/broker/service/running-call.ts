/**
 * One call on its way through the log: receive, begin, execute, finish. It does what call-decision.ts decides.
 * Not here: what a call executes and whether it may (worker-call.ts), finding the call again (call-runner.ts).
 *
 * Invariants: a call executes after its row is durable, and its outcome is sent after that is durable. Every caller gets exactly
 * one receipt or refusal.
 */
import { Cancellation, type CancelSignal } from '../../kernel/cancel-signal.js';
import type { Clock } from '../../kernel/clock.js';
import { type HostError, isHostError } from '../../kernel/errors.js';
import { type CallId, type CallLog, type CallOutcome, type CallRow, hasOutcome } from '../calls/call-log.js';
import { brokerLimits } from '../protocol/limits.js';
import { errorBody } from '../protocol/reply-body.js';
import {
  decideKnown,
  decideUnknown,
  isSurelyNew,
  mayHaveBegun,
  type Sending,
  wasSentElsewhere,
} from './call-decision.js';
import {
  cancelled,
  expired,
  hostFailed,
  keyConflict,
  type NamedTool,
  rowRemoved,
  stopping,
  tooManySendings,
  type UncertainReason,
  uncertain,
} from './call-errors.js';
import type { RunningSlots, Slot } from './running-slots.js';

/** One call, of a worker or of the host itself. */
export interface CallTask extends Pick<Sending, 'digest' | 'isCallersKey' | 'sentBefore'>, NamedTool {
  readonly id: CallId;
  /** Size of the arguments. */
  readonly bytes?: number;
  /** On the clock of this host. */
  readonly deadlineAtMs: number;
  isRepeatable(): boolean;
  /** Why the call must not run now. Called when the call arrives and when it begins. */
  refusal(): HostError | undefined;
  /** Returns the body of the outcome. A rejection becomes the outcome as well. */
  execute(signal: CancelSignal, timeMs: number): Promise<Buffer>;
}

/** Where one sending of a call came from. */
export interface Caller {
  receipt(owner: string): void;
  refuse(error: HostError): void;
  reply(body: Buffer): void;
  /** This host gives the call up without a reply: another host has it, this host stops, or the row was purged. */
  ended?(): void;
}

interface Joined {
  readonly party: string;
  readonly caller: Caller;
  hasReceipt: boolean;
}

export interface RunnerPorts {
  readonly log: CallLog;
  readonly clock: Clock;
  /** Undefined: no limit. */
  readonly slots?: RunningSlots | undefined;
  /** Bounds the calls that find no room while their rows are read. A call beyond the bound is refused, not queued. Undefined: no limit. */
  readonly lookups?: RunningSlots | undefined;
  /** Callers of one call. Undefined: no limit. */
  readonly sendingsMax?: number;
  onRepeated?(task: CallTask): void;
  onUncertain?(task: CallTask): void;
  onProblem(error: unknown): void;
}

/**
 * Time for the reply to reach its caller before the deadline. With less time than this left, no call begins: the time that a request was
 * on its way is not counted, so the deadline of the caller is a little earlier than the one here.
 */
const replyMs = 10;

export class RunningCall {
  readonly cameAtMs: number;
  isExecuting = false;
  readonly #cancellation = new Cancellation();
  #callers: Joined[] = [];
  /** The owner that receipts name; undefined before the row is durable. */
  #owner: string | undefined;
  #slot: Slot | undefined;
  /** The call may have run before, so no outcome says that it did not. */
  #mayHaveRun = false;

  /** `leave` removes the call from this host: a later sending of its key is a new call. */
  constructor(
    readonly task: CallTask,
    private readonly ports: RunnerPorts,
    private readonly isStopping: () => boolean,
    private readonly leave: () => void,
  ) {
    this.cameAtMs = ports.clock.nowMs();
  }

  join({ digest }: CallTask, party: string, caller: Caller): void {
    if (digest !== this.task.digest) return caller.refuse(keyConflict(this.task));
    const { sendingsMax = Number.POSITIVE_INFINITY } = this.ports;
    // Until the row is durable no caller has a receipt, then each has one.
    if (this.#owner === undefined) {
      if (this.#callers.length >= sendingsMax) return caller.refuse(tooManySendings(sendingsMax));
    } else {
      // Each sending gets its own receipt, also one that is replaced.
      this.#callers = this.#callers.filter((each) => each.party !== party);
      // Its worker asks for the outcome.
      if (this.#callers.length >= sendingsMax) this.#callers.shift();
    }
    this.#callers.push({ party, caller, hasReceipt: false });
    if (this.#owner !== undefined) this.#receipts(this.#owner);
  }

  /** With `party`, only that party leaves, and the call continues while others wait for it. Returns whether the call is cancelled. */
  cancel(party?: string): boolean {
    const others = this.#callers.filter((each) => each.party !== party);
    if (party !== undefined && others.length > 0) {
      const left = this.#callers.filter((each) => each.party === party && !each.hasReceipt);
      this.#callers = others;
      for (const { caller } of left) caller.refuse(cancelled().with({ execution: 'uncertain' }));
      return false;
    }
    this.#cancellation.abort();
    this.wake();
    return true;
  }

  wake(): void {
    this.#slot?.ready.resolve();
  }

  /** Never rejects. */
  async run(): Promise<void> {
    try {
      await this.#receive();
    } catch (error) {
      if (!isHostError(error)) this.ports.onProblem(error);
      this.#refuseInDoubt(isHostError(error) ? error : hostFailed(error));
    } finally {
      this.#slot?.release();
      this.leave();
      for (const { caller } of this.#callers) caller.ended?.();
    }
  }

  async #receive(): Promise<void> {
    const { task } = this;
    const { log } = this.ports;
    const { id, digest, isCallersKey, sentBefore } = task;
    const sending = this.#sending();
    const { refusal } = sending;
    const isNew = isSurelyNew(task);
    if (refusal && isNew) return this.#refuse(refusal);
    const busy = this.#enter();
    if (busy) return isNew ? this.#refuse(busy) : this.#lookUp(busy);
    const state = decideUnknown(sending, log.storeId, this.#slot?.isGranted !== false);
    const error = state === 'uncertain' ? uncertain(task, 'store_changed') : refusal;
    const { isNew: isReceived, row } = await log.receive({
      ...{ id, digest, isCallersKey, state, reply: error && errorBody(error) },
      deadlineMs: this.#leftMs,
    });
    if (!isReceived) {
      this.ports.onRepeated?.(task);
      return this.#continue(row);
    }
    this.#mayHaveRun = mayHaveBegun(sentBefore, log.storeId);
    if (state === 'uncertain') this.ports.onUncertain?.(task);
    this.#receipts(log.owner);
    return state === 'running' ? this.#execute() : this.#continue(row);
  }

  /** For a call that finds no room: if the log has a row with the outcome of its key, no room is needed. */
  async #lookUp(busy: HostError): Promise<void> {
    const { log, lookups } = this.ports;
    const { id, bytes = 0 } = this.task;
    const slot = lookups?.request(id.worker, bytes);
    if (isHostError(slot)) return this.#refuseInDoubt(busy);
    this.#slot = slot;
    const row = await log.find(id);
    return row ? this.#continue(row, busy) : this.#refuse(busy);
  }

  /** Returns why the call cannot be received now. Otherwise the call has a slot or waits for one. */
  #enter(): HostError | undefined {
    const { log, slots } = this.ports;
    const { id, isCallersKey, bytes = 0 } = this.task;
    if (this.isStopping()) return stopping();
    const slot = log.refusal(id.worker, isCallersKey) ?? slots?.request(id.worker, bytes);
    if (isHostError(slot)) return slot;
    this.#slot = slot;
    return undefined;
  }

  /** Continues from a row, until the call is over or has another owner. */
  async #continue(found: CallRow, busy?: HostError): Promise<void> {
    const { task } = this;
    const { log } = this.ports;
    this.#mayHaveRun ||= wasSentElsewhere(task.sentBefore, log.storeId);
    let row: CallRow | undefined = found;
    while (row) {
      const sending = this.#sending();
      switch (decideKnown(row, sending, await this.#ownershipOf(row))) {
        case 'conflict':
          return this.#refuse(keyConflict(task));
        case 'reply':
          this.#receipts(log.owner);
          // No reply: the worker was revoked, which purged the reply, and is listed again.
          return this.#reply(row.reply ?? errorBody(uncertain(task, 'store_changed')));
        case 'elsewhere':
          return this.#receipts(row.owner);
        case 'begin': {
          // A call that must not run needs no room.
          if (busy && !sending.refusal) return row.state === 'running' ? this.#refuseInDoubt(busy) : this.#refuse(busy);
          this.#receipts(log.owner);
          if (!sending.refusal) await this.#waitForSlot();
          const mayHaveRun: boolean = this.#mayHaveRun || row.state === 'running';
          // A call that may have run is left to the next host, to which its worker sends it again.
          if (this.isStopping() && mayHaveRun) return;
          const begun: CallRow | 'begun' | undefined = await log.begin(task.id, row.version);
          if (begun === 'begun') {
            this.#mayHaveRun = mayHaveRun;
            return this.#execute(sending.refusal);
          }
          row = begun;
          break;
        }
        default:
          row = await this.#finishLost(row);
          if (!row || !hasOutcome(row)) break;
          this.#receipts(log.owner);
          return this.#reply(row.reply);
      }
    }
    this.#refuseInDoubt(rowRemoved());
  }

  #finishLost({ owner, attempts }: CallRow): Promise<CallRow | undefined> {
    const reason = attempts >= brokerLimits.attempts ? 'attempts' : 'host_lost';
    return this.ports.log.finish(this.task.id, owner, this.#uncertain(reason));
  }

  /** A call that is cancelled or at its deadline goes on without a slot, and is refused. */
  async #waitForSlot(): Promise<void> {
    const slot = this.#slot;
    if (!slot || slot.isGranted) return;
    const cancelTimer = this.ports.clock.at(this.task.deadlineAtMs, slot.ready.resolve);
    await slot.ready.promise;
    cancelTimer();
  }

  /**
   * Executes the call, whose row names this host and the state `running`, and records its outcome. `earlier`: a refusal that was known
   * before the begin, so that the call did not wait for a slot.
   */
  async #execute(earlier?: HostError): Promise<void> {
    const { log, onProblem } = this.ports;
    const outcome = await this.#outcome(earlier);
    try {
      const row = await log.finish(this.task.id, log.owner, outcome);
      this.#reply(row?.reply);
    } catch (error) {
      // The caller gets the outcome now. For a later sending of the key it is uncertain.
      onProblem(error);
      this.#reply(outcome.reply);
    }
  }

  async #outcome(earlier: HostError | undefined): Promise<CallOutcome> {
    // The row took time to become durable: role, epoch, cancel and deadline may have changed.
    const refusal = this.isStopping() ? stopping() : (earlier ?? this.#refusal());
    if (refusal) return this.#mayHaveRun ? this.#uncertain('host_lost') : this.#outcomeOf('refused', refusal);
    this.isExecuting = true;
    try {
      return this.#outcomeOf('done', await this.task.execute(this.#cancellation, this.#leftMs - replyMs));
    } catch (error) {
      if (!isHostError(error)) this.ports.onProblem(error);
      const known = isHostError(error) ? error : hostFailed(error);
      if (known.details.execution !== 'not_executed') return this.#outcomeOf('done', known);
      if (!this.#mayHaveRun) return this.#outcomeOf('refused', known);
      return this.#outcomeOf('done', known.with({ execution: 'uncertain' }));
    }
  }

  #uncertain(reason: UncertainReason): CallOutcome {
    this.ports.onUncertain?.(this.task);
    return this.#outcomeOf('uncertain', uncertain(this.task, reason));
  }

  #outcomeOf(state: CallOutcome['state'], outcome: Buffer | HostError): CallOutcome {
    const reply = isHostError(outcome) ? errorBody(outcome) : outcome;
    return { state, reply, isCallersKey: this.task.isCallersKey, deadlineMs: this.#leftMs };
  }

  get #leftMs(): number {
    return Math.max(0, this.task.deadlineAtMs - this.ports.clock.nowMs());
  }

  #sending(): Sending {
    const { digest, isCallersKey, sentBefore } = this.task;
    return { digest, isCallersKey, sentBefore, isRepeatable: this.task.isRepeatable(), refusal: this.#refusal() };
  }

  #refusal(): HostError | undefined {
    if (this.#cancellation.aborted) return cancelled();
    return this.#leftMs <= replyMs ? expired() : this.task.refusal();
  }

  async #ownershipOf(row: CallRow): Promise<'gone' | 'elsewhere'> {
    const { log } = this.ports;
    // The row is of this host and has no outcome: recording the outcome failed earlier, or the row is that of this call, which waits.
    if (hasOutcome(row) || row.owner === log.owner) return 'gone';
    return (await log.isGone(row.owner)) ? 'gone' : 'elsewhere';
  }

  #receipts(owner: string): void {
    this.#owner = owner;
    for (const each of this.#callers) {
      if (each.hasReceipt) continue;
      each.hasReceipt = true;
      each.caller.receipt(owner);
    }
  }

  /** Callers with a receipt are not answered: they ask for the outcome. */
  #refuse(error: HostError): void {
    this.leave();
    const refused = this.#callers.filter(({ hasReceipt }) => !hasReceipt);
    this.#callers = this.#callers.filter(({ hasReceipt }) => hasReceipt);
    for (const { caller } of refused) caller.refuse(error);
  }

  /** This sending did not run. An earlier call with the same key may have, unless the key was made for this call. */
  #refuseInDoubt(error: HostError): void {
    this.#refuse(error.with({ execution: isSurelyNew(this.task) ? 'not_executed' : 'uncertain' }));
  }

  /** Undefined: the row was purged. */
  #reply(body: Buffer | undefined): void {
    if (body === undefined) return;
    this.leave();
    const callers = this.#callers;
    this.#callers = [];
    for (const { caller } of callers) caller.reply(body);
  }
}
