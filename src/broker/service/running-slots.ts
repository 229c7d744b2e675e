/**
 * How many calls of one worker run at once. Calls past the limit wait in the order in which they came.
 * Not here: limits of a server; the host's fair queue decides between workers.
 */
interface Line {
  running: number;
  /** In order of arrival. */
  readonly waiting: Set<Turn>;
}

export class RunningSlots {
  readonly #runningMax: number;
  readonly #waitingMax: number;
  readonly #byWorker = new Map<string, Line>();

  constructor(runningMax: number, waitingMax: number) {
    this.#runningMax = runningMax;
    this.#waitingMax = waitingMax;
  }

  /** Undefined: too many calls of this worker wait. */
  enter(worker: string): Turn | undefined {
    const line = this.#byWorker.get(worker) ?? { running: 0, waiting: new Set() };
    const isFree = line.running < this.#runningMax;
    if (!isFree && line.waiting.size >= this.#waitingMax) return undefined;
    this.#byWorker.set(worker, line);
    return new Turn(line, isFree, () => this.#byWorker.delete(worker));
  }
}

/** A slot of one worker, or a place in its line. */
export class Turn {
  /** Resolves when the call may begin, or was woken. Undefined: it may begin now. */
  readonly ready: Promise<void> | undefined;
  readonly #line: Line;
  readonly #onEmpty: () => void;
  #state: 'waiting' | 'running' | 'released' = 'waiting';
  #wake = () => {};

  constructor(line: Line, isFree: boolean, onEmpty: () => void) {
    this.#line = line;
    this.#onEmpty = onEmpty;
    if (isFree) this.#start();
    else {
      line.waiting.add(this);
      this.ready = new Promise((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  get isRunning(): boolean {
    return this.#state === 'running';
  }

  /** Ends the wait without a slot, because the call is over. */
  wake(): void {
    this.#wake();
  }

  /** Frees the slot for the next call, or leaves the line. */
  release(): void {
    const { waiting } = this.#line;
    if (this.#state === 'released') return;
    if (this.#state === 'running') {
      this.#line.running--;
      const [next] = waiting;
      if (next) next.#start();
    }
    waiting.delete(this);
    this.#state = 'released';
    if (this.#line.running === 0 && waiting.size === 0) this.#onEmpty();
  }

  #start(): void {
    this.#line.waiting.delete(this);
    this.#state = 'running';
    this.#line.running++;
    this.#wake();
  }
}
