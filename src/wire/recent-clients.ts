/**
 * Which clients had a request end on a connection lately. A server may go on with the work of a request that it has answered, and
 * then ask or log something: for this long, that may belong to a client other than the one whose request is in progress.
 * Two points in time decide it, whatever the number of clients: the last end, and the last end of any other client.
 *
 * Invariant: constant memory; no closure and no object is made when a request ends.
 */
export const recentEndMs = 30_000;

export class RecentClients {
  /** The client whose request ended last. */
  #last: string | undefined;
  #lastEndAtMs = Number.NEGATIVE_INFINITY;
  /** The last end of a request of any client but `#last`. */
  #othersEndAtMs = Number.NEGATIVE_INFINITY;

  /** A request of this client has ended. Undefined stands for one client: requests that were made in no client's name. */
  ended(client: string | undefined, atMs: number): void {
    if (client !== this.#last) {
      this.#othersEndAtMs = this.#lastEndAtMs;
      this.#last = client;
    }
    this.#lastEndAtMs = atMs;
  }

  /** Whether a request of any other client ended less than `recentEndMs` ago. */
  hasOther(client: string | undefined, nowMs: number): boolean {
    const endAtMs = client === this.#last ? this.#othersEndAtMs : this.#lastEndAtMs;
    return nowMs - endAtMs < recentEndMs;
  }

  /** Whether a request of any client at all ended less than `recentEndMs` ago. */
  hasAny(nowMs: number): boolean {
    return nowMs - this.#lastEndAtMs < recentEndMs;
  }
}
