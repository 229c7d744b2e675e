/** A runner over a log in memory. Tests end the executions. */
import type { CallRow } from '../../src/broker/calls/call-log.js';
import { readReplyBody, resultBody } from '../../src/broker/protocol/reply-body.js';
import { CallRunner } from '../../src/broker/service/call-runner.js';
import type { Caller, CallTask } from '../../src/broker/service/running-call.js';
import { RunningSlots } from '../../src/broker/service/running-slots.js';
import type { CancelSignal } from '../../src/kernel/cancel-signal.js';
import { HostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { MemoryCallLog, MemoryRows } from './memory-call-log.js';

export const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Records the messages to a caller, in order. */
export class Heard implements Caller {
  readonly all: string[] = [];
  receipt = (owner: string) => void this.all.push(`receipt ${owner === 'me' ? owner : 'other'}`);
  refuse = ({ code, details }: HostError) =>
    void this.all.push(`refused ${code}${details.execution === 'uncertain' ? ' uncertain' : ''}`);
  ended = () => void this.all.push('ended');
  reply = (body: Buffer) => {
    const read = readReplyBody(body);
    this.all.push(
      read.kind === 'result' ? `result ${read.bytes}` : `error ${read.error.code} ${read.error.details.reason}`,
    );
  };
}

export class RunnerRig {
  readonly clock = new FakeClock();
  readonly rows = new MemoryRows(this.clock);
  readonly problems: unknown[] = [];
  readonly executed: { timeMs: number; signal: CancelSignal; end: (result: string | Error) => void }[] = [];
  log = this.#newLog();
  runner = this.#newRunner();
  isRepeatable = false;
  refusal: HostError | undefined;

  #newLog(): MemoryCallLog {
    const log = new MemoryCallLog(this.clock, this.rows, 'store');
    return log;
  }

  #newRunner(running = 64, waiting = 256): CallRunner {
    const { log, clock } = this;
    const slots = new RunningSlots(running, waiting);
    return new CallRunner({ log, clock, slots, onProblem: (error) => this.problems.push(error) });
  }

  limit(running: number, waiting: number): void {
    this.runner = this.#newRunner(running, waiting);
  }

  /** Simulates a kill of the process and a new start with the same store. */
  async restart(): Promise<void> {
    await this.log.close();
    this.log = this.#newLog();
    this.runner = this.#newRunner();
  }

  send(key = 'k1', more: Partial<CallTask> = {}, party = 's1'): Heard {
    const heard = new Heard();
    const caller: Caller = { ...heard, receipt: (owner) => heard.receipt(owner === this.log.owner ? 'me' : owner) };
    const task: CallTask = {
      ...{ id: { worker: 'w1', epoch: 'e1', key }, server: 's', tool: 't', digest: 'd', isCallersKey: false },
      ...{ sentBefore: undefined, deadlineAtMs: this.clock.nowMs() + 1_000 },
      isRepeatable: () => this.isRepeatable,
      refusal: () => this.refusal,
      execute: (signal, timeMs) =>
        new Promise((resolve, reject) => {
          const end = (result: string | Error) =>
            typeof result === 'string' ? resolve(resultBody(Buffer.from(result), 'legacy')) : reject(result);
          signal.addEventListener('abort', () => reject(new HostError('cancelled', 'cancelled')));
          this.executed.push({ timeMs, signal, end });
        }),
      ...more,
    };
    this.runner.send(task, party, caller);
    return heard;
  }

  row(key = 'k1'): Promise<CallRow | undefined> {
    return this.log.find({ worker: 'w1', epoch: 'e1', key });
  }

  async end(result: string | Error, at = this.executed.length - 1): Promise<void> {
    this.executed[at]?.end(result);
    await settle();
  }
}
