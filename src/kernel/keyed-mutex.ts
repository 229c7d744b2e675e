/**
 * A mutex per key: one task at a time for each key, first in, first out.
 * Invariants: a task for a free key starts in the same tick. A failed task does not block the next. At most `waitingMax` tasks
 * wait for one key. A key without tasks takes no memory.
 */
import { HostError } from './errors.js';

interface Lane {
  /** Settles with the last task, and never rejects. */
  last: Promise<void> | undefined;
  tasks: number;
}

export class KeyedMutex {
  readonly #lanes = new Map<string, Lane>();
  readonly #waitingMax: number;

  constructor(waitingMax = 64) {
    this.#waitingMax = waitingMax;
  }

  take<T>(name: string, run: () => Promise<T>): Promise<T> {
    const lane = this.#lanes.get(name) ?? { last: undefined, tasks: 0 };
    if (lane.tasks > this.#waitingMax) return Promise.reject(tooMany(name, this.#waitingMax));
    this.#lanes.set(name, lane);
    lane.tasks++;
    const result = lane.last === undefined ? run() : lane.last.then(run);
    const over = () => {
      if (--lane.tasks === 0) this.#lanes.delete(name);
    };
    lane.last = result.then(over, over);
    return result;
  }

  /** Resolves when all current tasks are done. */
  async over(): Promise<void> {
    await Promise.all([...this.#lanes.values()].map(({ last }) => last));
  }
}

const tooMany = (server: string, limit: number): HostError =>
  new HostError('overloaded', `${limit} changes of server '${server}' are already waiting`, {
    server,
    limit,
    reason: 'changes',
    execution: 'not_executed',
    hint: 'wait until earlier changes of this server are done',
  });
