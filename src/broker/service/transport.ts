/**
 * What a transport (websocket/, nats/) gives to the service, and what the service does for it. Both transports pass
 * test/contract/broker/transport.test.ts.
 *
 * Invariants: the identity of a session comes from its credential, never from a message. Nothing that the service sends is
 * stored by a transport: a worker that misses a reply asks for it.
 */

import type { KnownServer } from '../../catalog/catalog-server.js';
import type { HostCallOptions, ToolResult } from '../../host/host-interface.js';
import type { KeyedCalls } from '../../host/keyed-calls.js';
import type { HostError } from '../../kernel/errors.js';
import type { Principal } from '../../policy/operation.js';
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
  cancel(session: WorkerSession, key: string): void;
  acknowledge(session: WorkerSession, keys: readonly string[]): void;
  /** Sends a `reply` for each call that has an outcome, and returns the others. */
  ask(session: WorkerSession, keys: readonly string[]): Promise<AskedCalls>;
  /** Body of the manifest of the worker's role. */
  manifest(session: WorkerSession): Promise<Buffer>;
  /** The session has a new connection. The transport reported the end of the one before. */
  connected(session: WorkerSession): void;
  /** The connection of the session ended. Once for each `connected`. */
  left(session: WorkerSession, reason: string): void;
}

/** A transport that serves workers. */
export interface WorkerTransport {
  /** Sends `manifest_changed` to the sessions of these workers. Sessions of other hosts may be included. */
  notify(isWanted: (identity: WorkerIdentity) => boolean, message: HostMessage): void;
  readonly connectedWorkers: number;
  /** Reads no more calls: those that come now can be sent to another host. Calls that were read are still answered. */
  stop(): Promise<void>;
  close(): Promise<void>;
}

export interface ServedHost {
  /** Servers, in the order of the configuration. */
  names(): readonly string[];
  /** Known facts about a server, without starting it. */
  known(server: string): KnownServer | undefined;
  isAllowed(principal: Principal, server: string, tool: string | undefined): boolean;
  /** True if callers with this role are refused because the configuration does not list it. */
  isUnlistedRole?(role: string): boolean;
  /** Increases when guards or roles may have changed. */
  readonly rulesRevision: number;
  /** Resolves when these servers were listed once, or after a time limit. Undefined: no wait. */
  startupListing(servers?: readonly string[]): Promise<void> | undefined;
  /** Starts servers with unknown tools once in the background to list them. */
  learnTools?(): void;
  onKnownChanged(listener: (server: string) => void): () => void;
  /** True if a call with an unknown outcome may be repeated: its annotations say so and are trusted. */
  mayRunTwice(server: string, tool: string): boolean;
  /** Runs calls with an `idempotencyKey`, except for keys that the host's own log knows. */
  useKeyedCalls?(calls: KeyedCalls, scope: 'shared'): void;
  call(server: string, tool: string, args: Buffer, options: HostCallOptions): Promise<ToolResult>;
}
