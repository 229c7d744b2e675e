/**
 * How many calls of one worker run at once. Calls past the limit wait in the order in which they came.
 * Not here: limits of a server; the host's fair queue decides between workers.
 */
export class RunningSlots {
  readonly #runningMax: number;
  readonly #waitingMax: number;
  /** The turns of each worker, in the order in which they came. Some wait only while `#runningMax` of them run. */
  readonly #byWorker = new Map<string, Set<Turn>>();

  constructor(runningMax: number, waitingMax: number) {
    this.#runningMax = runningMax;
    this.#waitingMax = waitingMax;
  }

  /** Undefined: too many calls of this worker wait. */
  enter(worker: string): Turn | undefined {
    const turns = this.#byWorker.get(worker) ?? new Set<Turn>();
    if (turns.size >= this.#runningMax + this.#waitingMax) return undefined;
    const turn = new Turn(turns.size < this.#runningMax, () => this.#leave(worker, turns, turn));
    this.#byWorker.set(worker, turns.add(turn));
    return turn;
  }

  #leave(worker: string, turns: Set<Turn>, turn: Turn): void {
    if (!turns.delete(turn)) return;
    if (turns.size === 0) this.#byWorker.delete(worker);
    if (turn.isRunning) [...turns].find((each) => !each.isRunning)?.start();
  }
}

/** A slot of one worker, or a place in its line. */
export class Turn {
  /** Frees the slot for the next call, or leaves the line. */
  readonly release: () => void;
  /** Resolves when the call may begin, or was woken. Undefined: it may begin now. */
  readonly ready: Promise<void> | undefined;
  isRunning: boolean;
  /** Ends the wait, also without a slot: the call may be over. */
  wake = () => {};

  constructor(isRunning: boolean, release: () => void) {
    this.isRunning = isRunning;
    this.release = release;
    if (isRunning) return;
    this.ready = new Promise((resolve) => {
      this.wake = resolve;
    });
  }

  start(): void {
    this.isRunning = true;
    this.wake();
  }
}
