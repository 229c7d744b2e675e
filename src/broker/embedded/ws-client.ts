/**
 * Connects to a broker over a WebSocket.
 * Invariants: a key is never sent in the clear to another machine, unless somebody said in so many words that it may be; a
 * certificate is always checked.
 */
import { readFileSync } from 'node:fs';
import { WebSocket } from 'ws';
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import type { Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { requirePrivateWay } from '../private-way.js';
import { brokerLimits, chunksMax, fragmentsMax, frameBytesMax } from './limits.js';
import type { Wire, WireReader } from './wire.js';
import { WsWire } from './ws-wire.js';

export interface ConnectOptions {
  readonly url: string;
  readonly clock: Clock;
  /** A file with the certificates that the broker's may be signed by. Undefined: those of this machine. */
  readonly tls?: { readonly ca: string };
  /** Sends the key in the clear, also to other machines. */
  readonly insecure?: boolean;
  readonly limits?: { readonly pingMs: number; readonly pongMs: number };
}

const handshakeMs = 10_000;

export function connectSocket(options: ConnectOptions, reader: WireReader, signal: CancelSignal): Promise<Wire> {
  const { clock, limits = brokerLimits } = options;
  const url = checkedUrl(options);
  const ca = options.tls && readCa(options.tls.ca);
  if (signal.aborted) return Promise.reject(notConnected(url, 'cancelled'));
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, {
      ...{ perMessageDeflate: false, followRedirects: false, autoPong: false },
      ...{ maxPayload: frameBytesMax, maxFragments: fragmentsMax, maxBufferedChunks: chunksMax },
      ...(ca && { ca }),
    });
    let failure: HostError | undefined;
    const giveUp = (reason: string) => {
      failure ??= notConnected(url, reason);
      socket.terminate();
    };
    const onAbort = () => giveUp('cancelled');
    const cancelLimit = clock.at(clock.nowMs() + handshakeMs, () => giveUp('handshake_timeout'));
    const settled = () => {
      cancelLimit();
      signal.removeEventListener('abort', onAbort);
    };
    signal.addEventListener('abort', onAbort, { once: true });
    socket.once('unexpected-response', (_request, response) => {
      failure = notConnected(url, 'refused', { httpStatus: response.statusCode ?? 0 });
      response.destroy();
      socket.terminate();
    });
    socket.once('error', (cause: Error & { code?: string }) => {
      settled();
      reject(failure ?? unreached(url, cause));
    });
    socket.once('upgrade', ({ socket: below }) => {
      socket.once('open', () => {
        settled();
        const wire = new WsWire(socket, below, clock, limits);
        wire.readBy(reader);
        resolve(wire);
      });
    });
  });
}

/** What is shown of it holds no user, query or fragment. */
function checkedUrl({ url, insecure = false }: ConnectOptions): URL {
  const parsed = URL.parse?.(url) ?? (URL.canParse(url) ? new URL(url) : undefined);
  if (!parsed || (parsed.protocol !== 'ws:' && parsed.protocol !== 'wss:'))
    throw wrongUrl('must begin with ws:// or wss://');
  if (parsed.username !== '' || parsed.password !== '' || parsed.hash !== '' || parsed.search !== '')
    throw wrongUrl('must have no user, query or fragment');
  requirePrivateWay(parsed, insecure);
  return parsed;
}

function readCa(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (cause) {
    throw new HostError('invalid_spec', `the file of certificates ${file} cannot be read`, {
      field: 'tls.ca',
      execution: 'not_executed',
      hint: 'give a file in PEM, readable for Hostler',
      cause,
    });
  }
}

const wrongUrl = (what: string): HostError =>
  new HostError('invalid_spec', `the address of the broker ${what}`, {
    field: 'url',
    execution: 'not_executed',
    hint: 'give the address that the broker shows when it starts',
  });

/** As OpenSSL and Node call them. */
const certificateCodes = /CERT|SELF_SIGNED|VERIFY_LEAF/;

function unreached(url: URL, cause: Error & { code?: string }): HostError {
  const { code = 'handshake' } = cause;
  if (!certificateCodes.test(code)) return notConnected(url, code, { cause });
  return new HostError('connect_failed', `the certificate of the broker at ${url.host} is not trusted (${code})`, {
    reason: code,
    execution: 'not_executed',
    hint: 'name the file of whoever signed it in NODE_EXTRA_CA_CERTS, and use a name that stands in it',
    cause,
  });
}

const notConnected = (url: URL, reason: string, facts: { httpStatus?: number; cause?: unknown } = {}): HostError =>
  new HostError('connect_failed', `the broker at ${url.host} cannot be reached`, {
    reason,
    execution: 'not_executed',
    hint: 'see that it runs and listens there',
    ...facts,
  });
