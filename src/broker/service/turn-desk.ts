/**
 * Who runs next: each worker in turn, first come first served within a worker, so many at once in all and of each.
 * Not here: what is run, and for how long.
 *
 * Invariants: never more than the limits run or wait; a worker with nothing running or waiting is not remembered.
 */
export interface DeskLimits {
  readonly running: number;
  readonly runningOfOne: number;
  readonly waitingOfOne: number;
  /** Of bodies that run or wait, all together. */
  readonly bytes: number;
  /** Of one worker, unless it has nothing else. */
  readonly bytesOfOne: number;
}

interface Job {
  readonly bytes: number;
  readonly start: () => void;
}

interface Party {
  running: number;
  bytes: number;
  readonly waiting: Job[];
}

export class TurnDesk {
  readonly #limits: DeskLimits;
  /** The next one first. */
  readonly #parties = new Map<string, Party>();
  #running = 0;
  #waiting = 0;
  #bytes = 0;

  constructor(limits: DeskLimits) {
    this.#limits = limits;
  }

  get running(): number {
    return this.#running;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Starts it now or when its turn comes; false: there is no room, and it is never started. Whoever was started calls `leave`. */
  enter(name: string, bytes: number, start: () => void): boolean {
    const party = this.#parties.get(name) ?? { running: 0, bytes: 0, waiting: [] };
    const isTooMuch = this.#bytes + bytes > this.#limits.bytes && this.#bytes > 0;
    const isTooMuchOfOne = party.bytes + bytes > this.#limits.bytesOfOne && party.bytes > 0;
    if (isTooMuch || isTooMuchOfOne || party.waiting.length >= this.#limits.waitingOfOne) return false;
    this.#parties.set(name, party);
    party.waiting.push({ bytes, start });
    this.#waiting++;
    this.#bytes += bytes;
    party.bytes += bytes;
    this.#next();
    return true;
  }

  leave(name: string, bytes: number): void {
    const party = this.#parties.get(name);
    if (!party) return;
    this.#running--;
    this.#bytes -= bytes;
    party.bytes -= bytes;
    party.running--;
    if (party.running === 0 && party.waiting.length === 0) this.#parties.delete(name);
    this.#next();
  }

  #next(): void {
    while (this.#running < this.#limits.running && this.#waiting > 0) {
      const job = this.#shift();
      if (!job) return;
      job.start();
    }
  }

  #shift(): Job | undefined {
    for (const [name, party] of this.#parties) {
      if (party.running >= this.#limits.runningOfOne) continue;
      const job = party.waiting.shift();
      if (!job) continue;
      this.#waiting--;
      this.#running++;
      party.running++;
      // To the end of the round.
      this.#parties.delete(name);
      this.#parties.set(name, party);
      return job;
    }
    return undefined;
  }
}
