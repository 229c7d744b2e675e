/**
 * How many calls of one worker run at once. Calls past the limit wait in the order in which they came.
 * Not here: limits of a server; the host's fair queue decides between workers.
 */
export class RunningSlots {
  readonly #runningMax: number;
  readonly #waitingMax: number;
  /** Open requests of each worker, the oldest first. Some wait only while `#runningMax` of them are granted. */
  readonly #byWorker = new Map<string, Set<SlotRequest>>();

  constructor(runningMax: number, waitingMax: number) {
    this.#runningMax = runningMax;
    this.#waitingMax = waitingMax;
  }

  /** Undefined: too many calls of this worker wait. */
  request(worker: string): SlotRequest | undefined {
    const requests = this.#byWorker.get(worker) ?? new Set<SlotRequest>();
    if (requests.size >= this.#runningMax + this.#waitingMax) return undefined;
    const isGranted = requests.size < this.#runningMax;
    const request = new SlotRequest(isGranted, () => this.#release(worker, requests, request));
    this.#byWorker.set(worker, requests.add(request));
    return request;
  }

  #release(worker: string, requests: Set<SlotRequest>, request: SlotRequest): void {
    if (!requests.delete(request)) return;
    if (requests.size === 0) this.#byWorker.delete(worker);
    if (request.isGranted) [...requests].find((each) => !each.isGranted)?.grant();
  }
}

/** The request of one call for a slot: granted, or in the queue of its worker. */
export class SlotRequest {
  /** Frees the slot for the next call, or leaves the queue. */
  readonly release: () => void;
  /** Resolves when the call may begin, or was woken. Undefined: it may begin now. */
  readonly ready: Promise<void> | undefined;
  isGranted: boolean;
  /** Ends the wait, also without a slot: the call may be over. */
  wake = () => {};

  constructor(isGranted: boolean, release: () => void) {
    this.isGranted = isGranted;
    this.release = release;
    if (isGranted) return;
    this.ready = new Promise((resolve) => {
      this.wake = resolve;
    });
  }

  grant(): void {
    this.isGranted = true;
    this.wake();
  }
}
