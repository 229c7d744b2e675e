/**
 * Tells the server that a legacy session is over (DELETE). What it says to that does not matter, and is not waited for
 * long: many servers answer 405.
 */
import type { Clock } from '../../kernel/clock.js';
import { type ExchangeRequest, HttpExchange } from './http-exchange.js';

const waitMsMax = 2_000;

export function endSession(request: Omit<ExchangeRequest, 'method' | 'body'>, clock: Clock): Promise<void> {
  return new Promise((resolve) => {
    const sink = {
      started() {},
      head: () => undefined,
      data: () => undefined,
      end() {},
      failed() {},
      released() {
        cancel();
        resolve();
      },
    };
    const exchange = new HttpExchange({ ...request, method: 'DELETE', body: null }, sink);
    const cancel = clock.at(clock.nowMs() + waitMsMax, () => {
      exchange.abort();
      resolve();
    });
    exchange.start();
  });
}
