/**
 * One thing at a time under each name; whoever comes meanwhile has its turn later, first come, first served.
 * Invariants: with nothing under way under its name, a turn begins in the tick it is asked for; a turn that fails does not
 * hinder the next; at most `waitingMax` wait under one name, and a name without turns takes no room.
 */
import { HostError } from './errors.js';

interface Lane {
  /** Settles with the last turn that was asked for, and never rejects. */
  last: Promise<void> | undefined;
  /** The one under way too. */
  turns: number;
}

export class KeyedMutex {
  readonly #lanes = new Map<string, Lane>();
  readonly #waitingMax: number;

  constructor(waitingMax = 64) {
    this.#waitingMax = waitingMax;
  }

  take<T>(name: string, run: () => Promise<T>): Promise<T> {
    const lane = this.#lanes.get(name) ?? { last: undefined, turns: 0 };
    if (lane.turns > this.#waitingMax) return Promise.reject(tooMany(name, this.#waitingMax));
    this.#lanes.set(name, lane);
    lane.turns++;
    const result = lane.last === undefined ? run() : lane.last.then(run);
    const over = () => {
      if (--lane.turns === 0) this.#lanes.delete(name);
    };
    lane.last = result.then(over, over);
    return result;
  }

  /** Resolves when all that was asked for so far is over. */
  async over(): Promise<void> {
    await Promise.all([...this.#lanes.values()].map(({ last }) => last));
  }
}

const tooMany = (server: string, limit: number): HostError =>
  new HostError('overloaded', `${limit} changes of server '${server}' already wait for their turn`, {
    server,
    limit,
    reason: 'changes',
    execution: 'not_executed',
    hint: 'change one server from one place, and wait until it is done',
  });
