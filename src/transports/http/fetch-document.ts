/**
 * One GET of a small document that an operator named, on a connection of its own that is closed behind it.
 * Not here: what the document means, and whether it is fetched at all (session/server-card.ts).
 *
 * Invariants: it ends by its deadline; no more than the limit is read; nothing is sent to another origin.
 */

import { ByteBuffer } from '../../kernel/byte-buffer.js';
import { HostError } from '../../kernel/errors.js';
import { type ExchangeSink, HttpExchange } from './http-exchange.js';
import { type HttpDeps, openPool, specUrl } from './http-pool.js';
import { loadUndici } from './undici.js';

export interface DocumentRequest {
  /** Which document it is, for errors: `the card of …`. */
  readonly what: string;
  readonly url: string;
  readonly deadlineAtMs: number;
  readonly bytesMax: number;
}

export async function fetchDocument(request: DocumentRequest, deps: HttpDeps): Promise<Buffer> {
  const { what, url, deadlineAtMs, bytesMax } = request;
  // Whoever answers there is no server of ours: it is called by its address.
  const server = URL.canParse(url) ? new URL(url).host : what;
  if (!deps.pool) await loadUndici();
  const dispatcher = openPool({ server, url }, deps, 1);
  try {
    return await new Promise<Buffer>((resolve, reject) => {
      const body = new ByteBuffer();
      const settle = (run: () => void) => {
        cancel();
        run();
      };
      const sink: ExchangeSink = {
        started() {},
        head: (status) => (status === 200 ? undefined : refusedWith(what, status)),
        data(chunk) {
          if (body.length + chunk.length > bytesMax) return tooLarge(what, bytesMax);
          body.add(chunk);
          return undefined;
        },
        end: () => settle(() => resolve(body.take())),
        failed: (error) => settle(() => reject(error)),
        released() {},
      };
      const headers = ['accept', 'application/json', 'accept-encoding', 'identity'];
      const exchange = new HttpExchange(
        { server, dispatcher, url: specUrl({ server, url }), method: 'GET', headers, body: null },
        sink,
      );
      const cancel = deps.clock.at(deadlineAtMs, () => {
        exchange.abort();
        reject(late(what));
      });
      exchange.start();
    });
  } finally {
    void dispatcher.destroy();
  }
}

const refusedWith = (what: string, httpStatus: number): HostError =>
  new HostError('connect_failed', `${what}: the answer was ${httpStatus} and not 200`, {
    httpStatus,
    hint: 'check the URL; it is asked without credentials',
  });

const tooLarge = (what: string, limit: number): HostError =>
  new HostError('result_too_large', `${what}: it has more than ${limit} bytes`, {
    limit,
    hint: 'make it smaller, or see that the URL is the right one',
  });

const late = (what: string): HostError =>
  new HostError('timeout', `${what}: it did not come in time`, {
    hint: 'check that its address can be reached from here',
  });
