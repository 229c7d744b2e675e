/**
 * What a transport (websocket/, nats/) gives to the service, and what the service does for it. Both transports pass
 * test/contract/broker/transport.test.ts.
 *
 * Invariants: the identity of a session comes from its credential, never from a message. A transport stores nothing that the service
 * sends: a worker that misses a reply asks for it.
 */

import type { BrokerEngine } from '../../host/broker-status.js';
import type { Host } from '../../host/host.js';
import type { HostCallOptions, ToolResult } from '../../host/host-interface.js';
import type { CallLog } from '../calls/call-log.js';
import type { HostMessage, WorkerMessage } from '../protocol/messages.js';

/** A worker as the configuration names it now. */
export interface WorkerIdentity {
  readonly name: string;
  readonly epoch: string;
  readonly role: string | undefined;
}

/** One worker process. It has one connection at a time, and keeps its id when it reconnects. */
export interface WorkerSession {
  readonly id: string;
  readonly name: string;
  readonly epoch: string;
  /** Undefined: the key of the worker was revoked or has expired, or its name has another epoch. */
  identity(): WorkerIdentity | undefined;
  /** Returns false if the worker is not connected or does not read. It asks for missed replies later. */
  send(message: HostMessage): boolean;
}

export interface ServiceHandlers {
  /**
   * Answers are sent to the session: to each sending of a call exactly one receipt or refusal, and to `ask` and `manifest` one answer with
   * their id. Throws a HostError for an operation that the transport must handle itself.
   */
  heard(session: WorkerSession, message: WorkerMessage): void;
  /** The session has a new connection. The transport has reported the end of the previous one. */
  connected(session: WorkerSession): void;
  /** The connection of the session ended. Once for each `connected`. */
  left(session: WorkerSession, reason: string): void;
}

/** A transport that serves workers. */
export interface WorkerTransport {
  /** Sends `manifest_changed` to the sessions of these workers. Sessions of other hosts may be included. */
  notify(isWanted: (identity: WorkerIdentity) => boolean, message: HostMessage): void;
  readonly connectedWorkers: number;
  /** Stops reading calls, so that workers can send new calls to another host. Calls that were read are still answered. */
  stop(): Promise<void>;
  close(): Promise<void>;
}

/** The part of a Host that serves workers. */
export interface ServedHost extends Pick<Host, HostPart>, Partial<Pick<Host, OptionalHostPart>> {
  call(server: string, tool: string, args: Buffer, options: HostCallOptions): Promise<ToolResult>;
}

type HostPart = 'names' | 'known' | 'isAllowed' | 'rulesRevision' | 'startupListing' | 'onKnownChanged' | 'mayRunTwice';
type OptionalHostPart = 'isUnlistedRole' | 'learnTools' | 'useKeyedCalls';

/** The parts that differ between SQLite with WebSocket and NATS. */
export interface Engine {
  readonly name: BrokerEngine;
  readonly log: CallLog;
  /** All hosts use this log, so idempotency keys of callers are in it. Otherwise each host has a log of its own for them. */
  readonly isLogShared: boolean;
  isConnected(): boolean;
  /** Starts to serve workers. */
  open(handlers: ServiceHandlers): Promise<WorkerTransport & { readonly url?: string | undefined }>;
  close(): Promise<void>;
}
