/**
 * The objects that an application may attach: a transport or a server of the MCP SDKs (both generations), recognised by shape
 * without importing an SDK. Hostler does the handshake, so the object must not be started or connected.
 * Invariant: one object carries at most one connection. `claim` marks it for the life of the process: a closed transport cannot
 * be started again, and two sessions over one transport would read each other's answers.
 */
import { notOpen } from '../../wire/wire-errors.js';

// The message types of the two SDK generations are not assignable to each other, so `any` is needed to accept both.

/** Client end of a connection, as the SDKs define it. */
export interface AttachableTransport {
  start(): Promise<void>;
  // biome-ignore lint/suspicious/noExplicitAny: see above.
  send(message: any, options?: any): Promise<void>;
  close(): Promise<void>;
  // biome-ignore lint/suspicious/noExplicitAny: see above.
  onmessage?: ((message: any, extra?: any) => any) | undefined;
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  sessionId?: string | undefined;
  setProtocolVersion?: ((version: string) => void) | undefined;
  /** SDK 2: each request has its own response stream, which can be aborted. */
  readonly hasPerRequestStream?: boolean;
}

/** `McpServer` or `Server` of an SDK. */
export interface AttachableServer {
  // biome-ignore lint/suspicious/noExplicitAny: see above.
  connect(transport: any): Promise<void>;
  close(): Promise<void>;
}

export type Attachable = AttachableTransport | AttachableServer;

export type AttachFactory = () => Attachable | Promise<Attachable>;

const transportMethods = ['start', 'send', 'close'];

/** True for a server, false for a transport. An object with the methods of both counts as a transport. */
export const isServerObject = (object: Attachable): object is AttachableServer => !hasMethods(object, transportMethods);

/** Returns why the value cannot be attached; undefined if it can. */
export function attachProblem(value: unknown): string | undefined {
  try {
    return problemOf(value);
  } catch {
    return 'cannot be inspected: reading one of its members throws';
  }
}

/** Like `attachProblem`, but also marks the object as used if it can be attached. */
export function claim(value: unknown): string | undefined {
  const problem = attachProblem(value);
  if (problem === undefined) used.add(value as object);
  return problem;
}

const used = new WeakSet<object>();

function problemOf(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return neither;
  if (used.has(value)) return 'was attached before; attach a new object each time';
  if (hasMethods(value, transportMethods)) return transportProblem(value as AttachableTransport);
  if (hasMethods(value, ['connect', 'close'])) return serverProblem(value);
  return neither;
}

const neither = 'is neither a transport (start, send, close) nor a server (connect, close) of an MCP SDK';

/** Fields that `start` sets in the transports of the SDKs. */
const startedFields = ['_started', '_process', '_abortController', '_eventSource', '_socket'] as const;

function transportProblem(transport: AttachableTransport & Partial<Record<(typeof startedFields)[number], unknown>>) {
  if (typeof transport.onmessage === 'function')
    return 'is in use: it has an onmessage handler already; attach a transport that no client or server is connected to';
  if (startedFields.some((field) => Boolean(transport[field])))
    return 'is started already; attach it unstarted: Hostler starts it and does the handshake';
  if (transport.sessionId !== undefined)
    return 'has a session already; attach a transport without one: Hostler does the handshake';
  return undefined;
}

interface Connectable {
  readonly callTool?: unknown;
  readonly isConnected?: unknown;
  readonly transport?: unknown;
  readonly server?: { readonly transport?: unknown } | null;
}

function serverProblem(object: Connectable): string | undefined {
  if (typeof object.callTool === 'function')
    return 'is a client; attach the transport that it would connect to instead';
  const reports = typeof object.isConnected === 'function' && object.isConnected() === true;
  const isConnected = reports || isPresent(object.transport) || isPresent(object.server?.transport);
  return isConnected
    ? 'is connected already; attach it unconnected: Hostler connects it and does the handshake'
    : undefined;
}

const isPresent = (value: unknown): boolean => value !== undefined && value !== null;

const hasMethods = (object: object, names: readonly string[]): boolean =>
  names.every((name) => typeof (object as Record<string, unknown>)[name] === 'function');

/**
 * Two linked transports in this process: an attached server is connected to `far`, the channel uses `near`. Unlike in the pair
 * of the SDKs, `near` gets `relatedRequestId` with each message, and can make `far.send` reject by returning an error.
 * Invariants: messages stay in order. After either end is closed, no message is delivered, and each `onclose` is called once.
 */
export function linkTransports(server: string) {
  let isOpen = true;
  const end = () => {
    if (!isOpen) return;
    isOpen = false;
    // `near` is notified even if `far` throws.
    try {
      far.onclose?.();
    } finally {
      near.onclose?.();
    }
  };
  const far: AttachableTransport = {
    start: async () => {},
    send: async (message: unknown, options?: { readonly relatedRequestId?: unknown }) => {
      if (!isOpen) throw notOpen(server);
      const refusal = near.onmessage?.(message, { relatedRequestId: options?.relatedRequestId });
      if (refusal !== undefined) throw refusal;
    },
    close: async () => end(),
  };
  const near: AttachableTransport = {
    start: async () => {},
    send: async (message: unknown) => {
      if (!isOpen) throw notOpen(server);
      try {
        far.onmessage?.(message);
      } catch (error) {
        // The server failed on this message; the connection is still usable.
        far.onerror?.(error instanceof Error ? error : new Error(String(error)));
      }
    },
    close: async () => end(),
  };
  return { near, far };
}
