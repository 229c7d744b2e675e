/** What the ingresses and a broker beside the gateway count, for metrics. */
import { ERAS } from '../eras/eras.js';

export interface IngressFigures {
  /** By era: open sessions, or open streams of `subscriptions/listen` where the era has no sessions. */
  readonly clients: Readonly<Record<string, number>>;
  /** HTTP requests that were answered, by the first digit of their status. */
  readonly httpAnswers: Readonly<Record<number, number>>;
}

export interface BrokerFigures {
  readonly isConnected: boolean;
  readonly callsRunning: number;
  readonly callsWaiting: number;
  /** Received since the start. */
  readonly calls: number;
  /** Calls that came again and were not run again. */
  readonly repeated: number;
  readonly expired: number;
  readonly denied: number;
  /** Undefined when the broker is in another process. */
  readonly embedded:
    | {
        readonly connections: number;
        readonly redeliveries: number;
        readonly deadLetters: number;
        readonly mailboxes: readonly { readonly mailbox: string; readonly count: number }[];
      }
    | undefined;
}

/** The first digits of an HTTP status. */
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
