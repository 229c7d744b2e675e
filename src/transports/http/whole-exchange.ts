/**
 * One request whose answer is small and is used as a whole.
 * Invariant: it ends by its deadline, and reads at most `bytesMax`.
 */
import { ByteBuffer } from '../../kernel/byte-buffer.js';
import type { Clock } from '../../kernel/clock.js';
import type { HostError } from '../../kernel/errors.js';
import type { ResponseHeaders } from './headers.js';
import { type ExchangeRequest, type ExchangeSink, HttpExchange } from './http-exchange.js';

interface WholeExchange extends ExchangeRequest {
  readonly clock: Clock;
  readonly deadlineAtMs: number;
  readonly bytesMax: number;
  /** A returned error ends the exchange before the body is read. Default: any status is accepted. */
  readonly accept?: (status: number) => HostError | undefined;
  readonly tooLarge: () => HostError;
  readonly late: (isSent: boolean) => HostError;
}

export interface WholeAnswer {
  readonly status: number;
  readonly headers: ResponseHeaders;
  readonly body: Buffer;
}

export function exchangeWhole(request: WholeExchange): Promise<WholeAnswer> {
  const { clock, deadlineAtMs, bytesMax, accept, tooLarge, late } = request;
  return new Promise((resolve, reject) => {
    const body = new ByteBuffer();
    let head: Omit<WholeAnswer, 'body'> = { status: 0, headers: {} };
    let isSent = false;
    const settle = (run: () => void) => {
      cancel();
      run();
    };
    const sink: ExchangeSink = {
      started() {
        isSent = true;
      },
      head(status, headers) {
        head = { status, headers };
        return accept?.(status);
      },
      data(chunk) {
        if (body.length + chunk.length > bytesMax) return tooLarge();
        body.add(chunk);
        return undefined;
      },
      end: () => settle(() => resolve({ ...head, body: body.take() })),
      failed: (error) => settle(() => reject(error)),
      released() {},
    };
    const exchange = new HttpExchange(request, sink);
    const cancel = clock.at(deadlineAtMs, () => {
      exchange.abort();
      reject(late(isSent));
    });
    exchange.start();
  });
}
