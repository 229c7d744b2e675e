/**
 * One GET of a small document that an operator named, on a connection of its own that is closed behind it.
 * Not here: what the document means, and whether it is fetched at all (session/server-card.ts).
 *
 * Invariants: it ends by its deadline; no more than the limit is read; nothing is sent to another origin.
 */
import { HostError } from '../../kernel/errors.js';
import { Gathering } from './gathering.js';
import { type ExchangeSink, HttpExchange } from './http-exchange.js';
import { type HttpDeps, openPool, specUrl } from './http-pool.js';

export interface DocumentRequest {
  /** Whose document it is, for errors. */
  readonly server: string;
  readonly url: string;
  readonly deadlineAtMs: number;
  readonly bytesMax: number;
}

export async function fetchDocument(request: DocumentRequest, deps: HttpDeps): Promise<Buffer> {
  const { server, url, deadlineAtMs, bytesMax } = request;
  const dispatcher = openPool({ server, url }, deps, 1);
  try {
    return await new Promise<Buffer>((resolve, reject) => {
      const body = new Gathering();
      const settle = (run: () => void) => {
        cancel();
        run();
      };
      const sink: ExchangeSink = {
        started() {},
        head: (status) => (status === 200 ? undefined : refusedWith(server, status)),
        data(chunk) {
          if (body.length + chunk.length > bytesMax) return tooLarge(server, bytesMax);
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
        reject(late(server));
      });
      exchange.start();
    });
  } finally {
    void dispatcher.destroy();
  }
}

const refusedWith = (server: string, httpStatus: number): HostError =>
  new HostError('connect_failed', `server '${server}' answered with ${httpStatus}`, { server, httpStatus });

const tooLarge = (server: string, limit: number): HostError =>
  new HostError('result_too_large', `server '${server}' sent more than ${limit} bytes`, { server, limit });

const late = (server: string): HostError =>
  new HostError('timeout', `server '${server}' did not send it in time`, { server });
