/**
 * Requests that are not put down at once, because their mailbox must be read first. Whether such a request was answered is known
 * by its reply, which is held until its worker took it: taken meanwhile, it would be missed, and the request would be a new one.
 * Not here: the reading itself (disk-reading.ts), replies that are still held (the store looks for them).
 *
 * Bound: as many as all connections may have under way to the disk.
 */
interface Late {
  readonly to: string;
  readonly sender: string;
  readonly id: string;
  isAnswered: boolean;
}

export class LateRequests {
  readonly #waiting = new Set<Late>();

  /** Whether its reply was taken before that was over. */
  async during(over: Promise<void>, to: string, sender: string, id: string): Promise<boolean> {
    const late: Late = { to, sender, id, isAnswered: false };
    this.#waiting.add(late);
    try {
      await over;
    } finally {
      this.#waiting.delete(late);
    }
    return late.isAnswered;
  }

  /** `from`: the mailbox of the request, as the reply names it. */
  replyTaken(from: string, by: string, id: string): void {
    for (const late of this.#waiting)
      if (late.id === id && late.sender === by && late.to === from) late.isAnswered = true;
  }
}
