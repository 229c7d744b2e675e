/** The ways in for programs: a worker that is connected and knows its tools, or an error that says why not. */
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import { systemClock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { readKeyFile } from '../key-file.js';
import { engineOf } from './engine-of.js';
import { RemoteTools, type RemoteToolsOptions } from './remote-tools.js';

interface Patience {
  /** How long the first connection may take, tries in between included; 30 s when absent. */
  readonly connectMs?: number | undefined;
  readonly signal?: CancelSignal | undefined;
}

export type ConnectWorkerOptions = RemoteToolsOptions & Patience;

/** Either `key` or `keyFile`. */
export interface ConnectOptions extends Omit<RemoteToolsOptions, 'open'>, Patience {
  /** As the broker shows it: `wss://…`, or `nats://host:4222/mailbox`. */
  readonly broker: string;
  readonly key?: string | undefined;
  readonly keyFile?: string | undefined;
  /** Without TLS also to another machine: whoever is in between can read key, calls and results. */
  readonly insecure?: boolean | undefined;
}

const defaultConnectMs = 30_000;

/** Over any engine. */
export async function connectWorker(options: ConnectWorkerOptions): Promise<RemoteTools> {
  const { connectMs = defaultConnectMs, signal, ...rest } = options;
  const tools = new RemoteTools(rest);
  try {
    await tools.ready(connectMs, signal);
    return tools;
  } catch (error) {
    await tools.close();
    throw error;
  }
}

/** Over the engine that the address stands for. */
export async function connect({ broker, key, keyFile, insecure, ...rest }: ConnectOptions): Promise<RemoteTools> {
  const known = keyFile === undefined ? key : readKeyFile(keyFile, 'keyFile');
  if (known === undefined) throw noKey();
  const { clock = systemClock } = rest;
  return connectWorker({ ...rest, open: await engineOf({ broker, key: known, clock, insecure }) });
}

const noKey = (): HostError =>
  new HostError('invalid_spec', 'there is no key for the broker', {
    field: 'key',
    execution: 'not_executed',
    hint: 'give keyFile, the path of a file with the key of this worker',
  });
