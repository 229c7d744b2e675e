/** The way in for programs: a worker that is connected and knows its tools, or an error that says why not. */
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import { RemoteTools, type RemoteToolsOptions } from './remote-tools.js';

export interface ConnectWorkerOptions extends RemoteToolsOptions {
  /** How long the first connection may take, tries in between included; 30 s when absent. */
  readonly connectMs?: number | undefined;
  readonly signal?: CancelSignal | undefined;
}

const defaultConnectMs = 30_000;

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
