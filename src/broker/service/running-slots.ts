/**
 * How many calls of one worker run at once. Calls past the limit wait in the order in which they came. The arguments of all of them are
 * in memory, so their bytes are bounded too.
 * Not here: limits of a server; the host's fair queue decides between workers.
 */
import { type Deferred, deferred } from '../../kernel/deferred.js';
import type { HostError } from '../../kernel/errors.js';
import { Fifo } from '../../kernel/fair-queue.js';
import { brokerLimits } from '../protocol/limits.js';
import { tooManyBytes, tooManyWaiting } from './call-errors.js';

/** The request of one call for a slot: granted, or in the queue of its worker. `ready` resolves when the call has a slot, or is woken. */
export interface Slot {
  isGranted: boolean;
  readonly ready: Deferred;
  /** Frees the slot for the next call, or leaves the queue. Called once. */
  release(): void;
}

interface Line {
  running: number;
  bytes: number;
  readonly waiting: Fifo<Slot>;
}

export class RunningSlots {
  readonly #byWorker = new Map<string, Line>();

  constructor(
    readonly runningMax: number,
    readonly waitingMax: number,
  ) {}

  /** Returns an error if too many calls of this worker wait, or their arguments have too many bytes. */
  request(worker: string, bytes: number): Slot | HostError {
    const line = this.#byWorker.get(worker) ?? { running: 0, bytes: 0, waiting: new Fifo<Slot>() };
    const isGranted = line.running < this.runningMax;
    if (!isGranted && line.waiting.size >= this.waitingMax) return tooManyWaiting(this.waitingMax);
    const limit = brokerLimits.requestBytesPerWorker;
    if (line.bytes + bytes > limit) return tooManyBytes(line.bytes + bytes, limit);
    const slot: Slot = { isGranted, ready: deferred(), release: () => this.#release(worker, line, slot, bytes) };
    this.#byWorker.set(worker, line);
    line.bytes += bytes;
    if (isGranted) line.running++;
    else line.waiting.push(slot);
    return slot;
  }

  #release(worker: string, line: Line, slot: Slot, bytes: number): void {
    line.bytes -= bytes;
    if (!slot.isGranted) line.waiting.delete(slot);
    else {
      const next = line.waiting.shift();
      if (next) next.isGranted = true;
      else line.running--;
      next?.ready.resolve();
    }
    if (line.running + line.waiting.size === 0) this.#byWorker.delete(worker);
  }
}
