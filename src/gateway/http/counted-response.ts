/**
 * The responses of an ingress, which count themselves.
 * Not here: what is made of the counts (metrics/figures.ts).
 *
 * Invariant: an answer counts once, with the status that was sent, whoever wrote it.
 */
import { ServerResponse } from 'node:http';

/** By the first digit of their status, in `counts`, as their head is written: without a listener for each. */
export function countedResponse(counts: Record<number, number>): typeof ServerResponse {
  class CountedResponse extends ServerResponse {
    override writeHead(status: number, ...rest: unknown[]): this {
      const digit = Math.trunc(status / 100);
      counts[digit] = (counts[digit] ?? 0) + 1;
      return super.writeHead(status, ...(rest as [string[]]));
    }
  }
  return CountedResponse as typeof ServerResponse;
}
