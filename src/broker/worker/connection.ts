/**
 * What a transport (websocket/, nats/) gives to a worker. Both implement it and pass test/contract/broker/transport.test.ts.
 *
 * Invariant: every promise settles when the connection is closed, at the latest.
 */
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import type { HostError } from '../../kernel/errors.js';
import type { AskedCalls, CallRequest } from '../protocol/messages.js';

export interface Receipt {
  /** The host that received the call. */
  readonly owner: string;
  readonly storeId: string;
}

export interface WorkerConnection {
  /** Name of this worker; its role, where the host tells it. */
  readonly worker: string;
  readonly role: string | undefined;
  /** Id of the store at the other end, as the host last told it. */
  readonly storeId: string;
  /** Resolves with the reason when the connection has ended; undefined if it was closed from this side. */
  readonly closed: Promise<HostError | undefined>;
  /**
   * Resolves with a receipt. Rejects with `transport` when no answer came, and with any other code when this sending was refused and
   * left no row.
   */
  call(request: CallRequest): Promise<Receipt>;
  /** What became of calls with a receipt. Replies come as replies. */
  ask(keys: readonly string[]): Promise<AskedCalls>;
  /** The cancel may be lost. */
  cancel(key: string): void;
  acknowledge(keys: readonly string[]): void;
  /** Body of the manifest (protocol/reply-body.ts). */
  manifest(): Promise<Buffer>;
  close(): Promise<void>;
}

/** None of these functions throws. */
export interface ConnectionHandlers {
  /** The same reply may come more than once. `digest`: see `HostMessage`. */
  reply(key: string, body: Buffer, digest?: string): void;
  progress(key: string, params: Buffer): void;
  manifestChanged(revision: string): void;
}

export interface OpenConnectionOptions {
  /** Random id of this worker process. */
  readonly session: string;
  readonly handlers: ConnectionHandlers;
  readonly signal: CancelSignal;
}

/** Resolves when the worker is connected and admitted. Settles soon after `signal` aborts. */
export type OpenConnection = (options: OpenConnectionOptions) => Promise<WorkerConnection>;
