/**
 * Fetches one small document from a configured URL, on a separate connection.
 * Invariants: the GET ends by its deadline, reads at most `bytesMax`, and is sent to one origin only.
 */
import { HostError } from '../../kernel/errors.js';
import { type HttpDeps, openPool, specUrl } from './http-pool.js';
import { loadUndici } from './undici.js';
import { exchangeWhole } from './whole-exchange.js';

export interface DocumentRequest {
  readonly what: string;
  readonly url: string;
  readonly deadlineAtMs: number;
  readonly bytesMax: number;
}

export async function fetchDocument(request: DocumentRequest, deps: HttpDeps): Promise<Buffer> {
  const { what, url, deadlineAtMs, bytesMax } = request;
  // The host is not a configured server, so errors show its address.
  const server = URL.canParse(url) ? new URL(url).host : what;
  if (!deps.pool) await loadUndici();
  const dispatcher = openPool({ server, url }, deps, 1);
  try {
    const { body } = await exchangeWhole({
      ...{ server, dispatcher, url: specUrl({ server, url }), method: 'GET', body: null },
      headers: ['accept', 'application/json', 'accept-encoding', 'identity'],
      ...{ clock: deps.clock, deadlineAtMs, bytesMax },
      accept: (status) => (status === 200 ? undefined : refusedWith(what, status)),
      tooLarge: () => tooLarge(what, bytesMax),
      late: () => late(what),
    });
    return body;
  } finally {
    void dispatcher.destroy();
  }
}

const refusedWith = (what: string, httpStatus: number): HostError =>
  new HostError('connect_failed', `${what}: the response has status ${httpStatus} instead of 200`, {
    httpStatus,
    hint: 'check the URL; the request has no credentials',
  });

const tooLarge = (what: string, limit: number): HostError =>
  new HostError('result_too_large', `${what} has more than ${limit} bytes`, {
    limit,
    hint: 'make it smaller, or check the URL',
  });

const late = (what: string): HostError =>
  new HostError('timeout', `${what} did not arrive in time`, {
    hint: 'check that this machine can reach the address',
  });
