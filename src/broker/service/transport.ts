/**
 * What a transport (websocket/, nats/) gives to the service, and what the service does for it. Both transports pass
 * test/contract/broker/transport.test.ts.
 *
 * Invariants: the identity of a session comes from its credential, never from a message. Nothing that the service sends is
 * stored by a transport: a worker that misses a reply asks for it.
 */
import type { HostError } from '../../kernel/errors.js';
import type { CallRequest, HostMessage } from '../protocol/messages.js';

/** A worker as the configuration names it now. */
export interface WorkerIdentity {
  readonly name: string;
  readonly epoch: string;
  readonly role: string | undefined;
}

/** One worker process. It has one connection at a time; its id stays the same over reconnects. */
export interface WorkerSession {
  readonly id: string;
  readonly name: string;
  readonly epoch: string;
  /** Undefined: the key of the worker was revoked or has expired. */
  identity(): WorkerIdentity | undefined;
  /** Returns false if the worker is not connected or does not read: it will ask. */
  send(message: HostMessage): boolean;
}

/** One sending of a call. Exactly one of the two functions is called, once. */
export interface IncomingCall {
  readonly session: WorkerSession;
  readonly request: CallRequest;
  receipt(owner: string): void;
  /** This sending left no row. */
  refuse(error: HostError): void;
}

export interface AskedCalls {
  readonly running: readonly string[];
  readonly resend: readonly string[];
}

/** None of these functions throws or rejects. */
export interface ServiceHandlers {
  call(incoming: IncomingCall): void;
  /** Returns true if this host received or runs the call. */
  cancel(session: WorkerSession, key: string): boolean;
  taken(session: WorkerSession, keys: readonly string[]): void;
  /** Sends a `reply` for each call that has an outcome, and returns the others. */
  ask(session: WorkerSession, keys: readonly string[]): Promise<AskedCalls>;
  /** Body of the manifest of the worker's role. */
  manifest(session: WorkerSession): Promise<Buffer>;
  /** A worker connected, or sent its first message. */
  joined(session: WorkerSession): void;
  left(session: WorkerSession): void;
}

/** A transport that serves workers. */
export interface WorkerTransport {
  /** Sends `manifest_changed` to the sessions of these workers. Sessions of other hosts may be included. */
  notify(isWanted: (identity: WorkerIdentity) => boolean, message: HostMessage): void;
  readonly connectedWorkers: number;
  /** Accepts nothing more. Everything that was read is answered before it resolves. */
  stop(): Promise<void>;
  close(): Promise<void>;
}
