import { ServerResponse } from 'node:http';

/**
 * Responses that are counted by the first digit of their status, in `counts`, as their head is written: in one place, whoever
 * answers, and without a listener for each.
 */
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
