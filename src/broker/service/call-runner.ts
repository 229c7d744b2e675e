/**
 * The calls that this host has in memory, for workers and for calls of the host with an idempotency key.
 * Not here: the steps of one call (running-call.ts).
 *
 * Invariant: a second sending of a key that is in memory joins the first.
 */

import { Cancellation } from '../../kernel/cancel-signal.js';
import { sleep } from '../../kernel/clock.js';
import { FreshMap } from '../../kernel/fresh-map.js';
import { compositeKey } from '../../policy/composite-key.js';
import type { CallId } from '../calls/call-log.js';
import { type Caller, type CallTask, type RunnerPorts, RunningCall } from './running-call.js';

export class CallRunner {
  readonly #calls = new FreshMap<string, RunningCall>();
  #isStopping = false;
  #idle: Cancellation | undefined;

  constructor(private readonly ports: RunnerPorts) {}

  /** `party`: a later sending of the same party replaces this caller. */
  send(task: CallTask, party: string, caller: Caller): void {
    const key = keyOf(task.id);
    const known = this.#calls.get(key);
    if (known) {
      this.ports.onRepeated?.(task);
      known.join(task, party, caller);
      return;
    }
    const leave = () => {
      // `leave` may be called twice, and the key may belong to a later call by then.
      if (this.#calls.get(key) === call) this.#calls.delete(key);
      if (this.#calls.size === 0) this.#idle?.abort();
    };
    const call = new RunningCall(task, this.ports, () => this.#isStopping, leave);
    call.join(task, party, caller);
    this.#calls.set(key, call);
    void call.run();
  }

  has(id: CallId): boolean {
    return this.#calls.get(keyOf(id)) !== undefined;
  }

  /** `left`: the call continues, because others wait for it. Undefined: this host does not have the call. */
  cancel(id: CallId, party: string): 'cancelled' | 'left' | undefined {
    const call = this.#calls.get(keyOf(id));
    return call && (call.cancel(party) ? 'cancelled' : 'left');
  }

  cancelAll(isMeant: (id: CallId) => boolean): void {
    for (const call of this.#calls.values()) if (isMeant(call.task.id)) call.cancel();
  }

  /** Begins no further call. Waiting calls are recorded as refused. Running ones may end for `graceMs`, and are cancelled then. */
  async stop(graceMs: number, recordMs: number): Promise<void> {
    this.#isStopping = true;
    for (const call of this.#calls.values()) call.wake();
    await this.#whenIdle(graceMs);
    this.cancelAll(() => true);
    await this.#whenIdle(recordMs);
  }

  figures(): { waiting: number; running: number; oldestMs: number | undefined } {
    let [waiting, running, oldestAtMs] = [0, 0, Number.POSITIVE_INFINITY];
    for (const call of this.#calls.values()) {
      if (call.isExecuting) running++;
      else waiting++;
      oldestAtMs = Math.min(oldestAtMs, call.cameAtMs);
    }
    const nowMs = this.ports.clock.nowMs();
    return { waiting, running, oldestMs: waiting + running === 0 ? undefined : nowMs - oldestAtMs };
  }

  async #whenIdle(limitMs: number): Promise<void> {
    this.#idle = new Cancellation();
    if (this.#calls.size > 0) await sleep(this.ports.clock, limitMs, this.#idle);
  }
}

const keyOf = ({ worker, epoch, key }: CallId): string => compositeKey(worker, epoch, key);
