/**
 * Opens a WebSocket to a broker, from a worker.
 * Invariants: a key is never sent in the clear to another machine, unless `insecure` says so; certificates are always checked.
 */
import type { Duplex } from 'node:stream';
import { WebSocket } from 'ws';
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import type { Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { brokerLimits } from '../protocol/limits.js';
import { requireTls } from '../require-tls.js';
import { cancelledConnect, networkError, statusError, timeoutError } from './connect-errors.js';
import { chunksMax, fragmentsMax } from './limits.js';

const handshakeMs = 10_000;

export interface OpenSocket {
  readonly socket: WebSocket;
  readonly below: Duplex;
}

export function openSocket(url: URL, clock: Clock, signal: CancelSignal): Promise<OpenSocket> {
  if (signal.aborted) return Promise.reject(cancelledConnect());
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, {
      ...{ perMessageDeflate: false, followRedirects: false, autoPong: false, skipUTF8Validation: true },
      ...{ maxPayload: brokerLimits.messageBytes, maxFragments: fragmentsMax, maxBufferedChunks: chunksMax },
    });
    let failure: HostError | undefined;
    const giveUp = (error: HostError) => {
      failure ??= error;
      socket.terminate();
    };
    const onAbort = () => giveUp(cancelledConnect());
    const cancelLimit = clock.at(clock.nowMs() + handshakeMs, () => giveUp(timeoutError(url)));
    const settled = () => {
      cancelLimit();
      signal.removeEventListener('abort', onAbort);
    };
    signal.addEventListener('abort', onAbort, { once: true });
    socket.once('unexpected-response', (_request, response) => {
      response.destroy();
      giveUp(statusError(url, response.statusCode ?? 0));
    });
    // Also after the handshake: an error without a listener would end the process.
    socket.on('error', (cause: Error & { code?: string }) => {
      settled();
      reject(failure ?? networkError(url, cause));
    });
    socket.once('upgrade', ({ socket: below }) => {
      socket.once('open', () => {
        settled();
        resolve({ socket, below });
      });
    });
  });
}

/** An error never quotes the URL: it may contain a password by mistake. */
export function checkedUrl(text: string, insecure: boolean): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || (url.protocol !== 'ws:' && url.protocol !== 'wss:')) throw wrongUrl('must begin with ws:// or wss://');
  if (url.username !== '' || url.password !== '' || url.hash !== '' || url.search !== '')
    throw wrongUrl('must have no user, password, query or fragment');
  requireTls(url, insecure);
  return url;
}

const wrongUrl = (what: string): HostError =>
  new HostError('invalid_spec', `the address of the broker ${what}`, {
    field: 'broker',
    execution: 'not_executed',
    hint: 'use the address that hostler up prints for workers',
  });
