/**
 * A mutex per key: one task at a time for each key, first in, first out.
 * Invariants: a task for a free key starts in the same tick. A failed task does not block the next. At most `waitingMax` tasks
 * wait for one key. A key without tasks takes no memory.
 */
import { HostError } from './errors.js';

interface Queue {
  /** Settles with the last task, and never rejects. */
  last: Promise<void> | undefined;
  tasks: number;
}

export class KeyedMutex {
  readonly #queues = new Map<string, Queue>();
  readonly #waitingMax: number;

  constructor(waitingMax = 64) {
    this.#waitingMax = waitingMax;
  }

  runExclusive<T>(name: string, run: () => Promise<T>): Promise<T> {
    const queue = this.#queues.get(name) ?? { last: undefined, tasks: 0 };
    if (queue.tasks > this.#waitingMax) return Promise.reject(tooMany(name, this.#waitingMax));
    this.#queues.set(name, queue);
    queue.tasks++;
    const result = queue.last === undefined ? run() : queue.last.then(run);
    const settled = () => {
      if (--queue.tasks === 0) this.#queues.delete(name);
    };
    queue.last = result.then(settled, settled);
    return result;
  }

  /** Resolves when all current tasks are done. */
  async over(): Promise<void> {
    await Promise.all([...this.#queues.values()].map(({ last }) => last));
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
