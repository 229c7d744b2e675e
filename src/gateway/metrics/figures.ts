/** The counts of the ingresses and of the broker, for metrics. */
import { ERAS } from '../eras/eras.js';

export interface IngressFigures {
  /** Open sessions by era; in an era without sessions, open streams of `subscriptions/listen`. */
  readonly clients: Readonly<Record<string, number>>;
  /** Answered HTTP requests by the first digit of their status. */
  readonly httpAnswers: Readonly<Record<number, number>>;
}

export interface BrokerFigures {
  readonly isConnected: boolean;
  readonly connectedWorkers: number;
  readonly waiting: number;
  readonly running: number;
  /** Age of the oldest call that waits or runs. */
  readonly oldestMs: number | undefined;
  /** Calls received since the start. */
  readonly calls: number;
  /** Calls that were sent again and not run again. */
  readonly repeated: number;
  readonly expired: number;
  readonly denied: number;
  readonly refused: number;
  /** Calls that may have run and whose outcome is not known. */
  readonly uncertain: number;
  /** Bytes of replies in the log. */
  readonly replyBytes: number;
}

export const statusClasses = [1, 2, 3, 4, 5];

export function addFigures(all: readonly IngressFigures[]): IngressFigures {
  const httpAnswers: Record<number, number> = {};
  for (const each of all) {
    for (const digit of statusClasses) httpAnswers[digit] = (httpAnswers[digit] ?? 0) + (each.httpAnswers[digit] ?? 0);
  }
  return {
    clients: Object.fromEntries(
      ERAS.map(({ name }) => [name, all.reduce((sum, { clients }) => sum + (clients[name] ?? 0), 0)]),
    ),
    httpAnswers,
  };
}
