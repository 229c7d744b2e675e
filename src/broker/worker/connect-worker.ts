/** Entry points for programs: a worker that is connected and knows its tools, or an error that says why not. */
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import { systemClock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { readKeyFile } from '../key-file.js';
import { openConnection } from './open-connection.js';
import { RemoteTools, type RemoteToolsOptions } from './remote-tools.js';

interface FirstConnection {
  /** How long the first connection may take, with all its attempts; 30 s by default. */
  readonly connectMs?: number | undefined;
  readonly signal?: CancelSignal | undefined;
}

export type ConnectWorkerOptions = RemoteToolsOptions & FirstConnection;

/** Give `key` or `keyFile`. */
export interface ConnectOptions extends Omit<RemoteToolsOptions, 'open'>, FirstConnection {
  /** As the host prints it: `wss://host:port/broker`, or `nats://host:4222/worker-1`. */
  readonly broker: string;
  readonly key?: string | undefined;
  readonly keyFile?: string | undefined;
  /** Without TLS also to another machine: key, calls and results can be read on the network. */
  readonly insecure?: boolean | undefined;
}

const connectDefaultMs = 30_000;

/** Over a given transport. */
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

/** Over the transport that the address names. */
export async function connect({ broker, key, keyFile, insecure, ...rest }: ConnectOptions): Promise<RemoteTools> {
  const known = keyFile === undefined ? key : readKeyFile(keyFile, 'keyFile');
  if (known === undefined) throw noKey();
  const { clock = systemClock } = rest;
  return connectWorker({ ...rest, open: await openConnection({ broker, key: known, clock, insecure }) });
}

const noKey = (): HostError =>
  new HostError('invalid_spec', 'there is no key for the broker', {
    field: 'key',
    execution: 'not_executed',
    hint: 'give keyFile, the path of a file with the key of this worker',
  });
