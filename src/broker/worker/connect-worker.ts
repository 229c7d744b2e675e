/** Entry points for programs: a worker that is connected and knows its tools, or an error that says why not. */

import { workerPattern } from '../../config/values.js';
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import { type Clock, systemClock } from '../../kernel/clock.js';
import { type HostError, notExecuted } from '../../kernel/errors.js';
import { readKeyFile } from '../key-file.js';
import { requireTls } from '../require-tls.js';
import type { OpenConnection } from './connection.js';
import { RemoteTools, type RemoteToolsOptions } from './remote-tools.js';

export interface ConnectWorkerOptions extends RemoteToolsOptions {
  /** How long the first connection may take, with all its attempts; 30 s by default. */
  readonly connectMs?: number | undefined;
  readonly signal?: CancelSignal | undefined;
}

/** Give `key` or `keyFile`. */
export interface ConnectOptions extends Omit<ConnectWorkerOptions, 'open'> {
  /** As the host prints it: `wss://host:port/broker`, or `nats://` or `tls://` with the name of the worker: `nats://host:4222/worker-1`. */
  readonly broker: string;
  readonly key?: string | undefined;
  readonly keyFile?: string | undefined;
  /** Allows a connection without TLS to another machine: key, calls and results can then be read on the network. */
  readonly insecure?: boolean | undefined;
}

const connectDefaultMs = 30_000;

/** Connects a worker over a given transport. */
export async function connectWorker(options: ConnectWorkerOptions): Promise<RemoteTools> {
  const { connectMs = connectDefaultMs, signal, ...rest } = options;
  const tools = new RemoteTools(rest);
  try {
    await tools.ready(connectMs, signal);
    return tools;
  } catch (error) {
    await tools.close();
    throw error;
  }
}

/** Connects a worker over the transport that the address names. */
export async function connect({ broker, key, keyFile, insecure, ...rest }: ConnectOptions): Promise<RemoteTools> {
  const known = keyFile === undefined ? key : readKeyFile(keyFile, 'keyFile');
  if (known === undefined) throw noKey();
  const { clock = systemClock } = rest;
  return connectWorker({ ...rest, open: await openConnection({ broker, key: known, clock, insecure }) });
}

function noKey(): HostError {
  const hint = 'give keyFile, the path of a file with the key of this worker';
  return notExecuted('invalid_spec', 'there is no key for the broker', hint, { field: 'key' });
}

type Address = Pick<ConnectOptions, 'broker' | 'insecure'> & { readonly key: string; readonly clock: Clock };

/** An error never quotes the address: it may contain a password by mistake. */
export async function openConnection({ broker, key, clock, insecure = false }: Address): Promise<OpenConnection> {
  const url = URL.canParse(broker) ? new URL(broker) : undefined;
  if (!url || !/^(wss?|nats|tls):$/.test(url.protocol))
    throw wrongAddress('must begin with ws://, wss://, nats:// or tls://');
  if (url.username !== '' || url.password !== '' || url.hash !== '' || url.search !== '')
    throw wrongAddress('must have no user, password, query or fragment');
  const isWebSocket = url.protocol.startsWith('ws');
  // A NATS server admits a key, but does not tell which worker it belongs to.
  const worker = url.pathname.slice(1);
  if (!isWebSocket && !workerPattern.test(worker))
    throw wrongAddress('must end with the name of the worker', 'write it after the port: nats://host:4222/worker-1');
  requireTls(url, insecure);
  if (isWebSocket) {
    const { openWebSocketConnection } = await import('../websocket/worker-connection.js');
    return openWebSocketConnection({ url, key, clock });
  }
  const { openNatsConnection } = await import('../nats/worker-connection.js');
  return openNatsConnection({ url: `${url.protocol}//${url.host}`, key, worker, clock, insecure });
}

const wrongAddress = (what: string, hint = 'use the address that hostler up prints for workers'): HostError =>
  notExecuted('invalid_spec', `the address of the broker ${what}`, hint, { field: 'broker' });
