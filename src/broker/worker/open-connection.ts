/**
 * Chooses the transport by the scheme of the broker's address. Only the chosen one is loaded.
 * Invariant: an error quotes nothing of the address.
 */
import { workerPattern } from '../../config/values.js';
import type { Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import type { OpenConnection } from './connection.js';

export interface BrokerAddress {
  /** `ws://` or `wss://`, or `nats://` and `tls://` with the name of the worker as path: `nats://host:4222/worker-1`. */
  readonly broker: string;
  readonly key: string;
  /** Without TLS also to another machine. */
  readonly insecure?: boolean | undefined;
  readonly clock: Clock;
}

export async function openConnection({ broker, key, clock, insecure = false }: BrokerAddress): Promise<OpenConnection> {
  const url = URL.canParse(broker) ? new URL(broker) : undefined;
  switch (url?.protocol) {
    case 'ws:':
    case 'wss:': {
      const { openWebSocketConnection } = await import('../websocket/worker-connection.js');
      return openWebSocketConnection({ url: broker, key, clock, insecure });
    }
    case 'nats:':
    case 'tls:': {
      const worker = workerIn(url);
      const { openNatsConnection } = await import('../nats/worker-connection.js');
      return openNatsConnection({ url: `${url.protocol}//${url.host}`, key, worker, clock, insecure });
    }
    default:
      throw wrongAddress(
        'must begin with ws://, wss://, nats:// or tls://',
        'use the address that hostler up prints for workers',
      );
  }
}

/** A NATS server admits a key, but does not tell which worker it belongs to. */
function workerIn({ pathname, username, password, search }: URL): string {
  if (username !== '' || password !== '' || search !== '')
    throw wrongAddress('must have no user, password or query', 'put the key into a file');
  const worker = pathname.slice(1);
  if (workerPattern.test(worker)) return worker;
  throw wrongAddress('must end with the name of the worker', 'write it after the port: nats://host:4222/worker-1');
}

const wrongAddress = (what: string, hint: string): HostError =>
  new HostError('invalid_spec', `the address of the broker ${what}`, {
    ...{ field: 'broker', execution: 'not_executed', hint },
  });
