/**
 * Loads the NATS packages, which are optional, and opens connections.
 *
 * Invariants: nothing is sent to another machine without TLS unless `insecure` says so. Errors of the client become HostErrors here.
 */
import type * as JetStream from '@nats-io/jetstream';
import type * as Nats from '@nats-io/transport-node';
import type { Clock } from '../../kernel/clock.js';
import { HostError, isHostError, notExecuted } from '../../kernel/errors.js';
import { importPeer } from '../../kernel/import-peer.js';
import { requireTls } from '../require-tls.js';

export type NatsConnection = Nats.NatsConnection;
export type NatsMessage = Nats.Msg;

export interface NatsAddress {
  /** `nats://host:port` or `tls://host:port`. */
  readonly url: string;
  /** Seed of a NATS user (`SU...`), or `user:password`. Undefined: a server without users, for tests. */
  readonly key: string | undefined;
  /** Allows an address without TLS on another machine. */
  readonly insecure?: boolean | undefined;
}

/** What the parts of the log of one host share. */
export interface HostParts {
  readonly connection: NatsConnection;
  readonly clock: Clock;
  readonly owner: string;
  readonly replicas: number;
  readonly batch: TurnBatch;
  readonly onProblem: (error: unknown) => void;
}

export interface ConnectOptions extends NatsAddress {
  /** Shown by the monitoring port of the server. */
  readonly name: string;
  /** Whether a lost connection reconnects, for ever. Otherwise it is closed. */
  readonly reconnects: boolean;
}

/** Error codes of JetStream. */
export const noStream = 10059;
export const wrongSequence: readonly number[] = [10071, 10164];
/** 0: it is not an error of JetStream. */
export const codeOf = (error: unknown): number => Number((error as { code?: unknown }).code) || 0;

const connectMs = 5_000;
const pingMs = 5_000;
const reconnectMs = 250;

export async function connectNats({ url, key, insecure, name, reconnects }: ConnectOptions): Promise<NatsConnection> {
  requireTls(parsedUrl(url), insecure);
  const { connect, nkeyAuthenticator } = await loadNats();
  const isSeed = key?.startsWith('SU') ?? false;
  const colon = key?.indexOf(':') ?? -1;
  if (key !== undefined && !isSeed && colon < 1) {
    const message = 'key: must be the seed of a NATS user (SU...) or user:password';
    const hint = 'make a key with hostler key add NAME --nats --key-file FILE';
    throw notExecuted('invalid_spec', message, hint, { field: 'key' });
  }
  try {
    return await connect({
      ...{ servers: url, name, timeout: connectMs, pingInterval: pingMs, maxPingOut: 2, noAsyncTraces: true },
      // While the configuration of the server is edited, it may refuse the key for a moment. That must not end a host.
      ...{ reconnect: reconnects, maxReconnectAttempts: -1, ignoreAuthErrorAbort: reconnects },
      ...{ reconnectTimeWait: reconnectMs, reconnectJitter: reconnectMs, reconnectJitterTLS: reconnectMs },
      ...(url.startsWith('tls:') ? { tls: {} } : {}),
      ...(isSeed ? { authenticator: nkeyAuthenticator(new TextEncoder().encode(key)) } : {}),
      ...(key !== undefined && !isSeed ? { user: key.slice(0, colon), pass: key.slice(colon + 1) } : {}),
    });
  } catch (error) {
    throw connectError(error);
  }
}

export const loadNats = () => load<typeof Nats>('@nats-io/transport-node');
export const loadJetStream = () => load<typeof JetStream>('@nats-io/jetstream');

const packages = '@nats-io/transport-node@3 @nats-io/jetstream@3';

async function load<T>(name: string): Promise<T> {
  try {
    return (await importPeer(name)) as T;
  } catch (cause) {
    const hint = `run npm install ${packages} beside hostler, with --global if hostler is installed globally`;
    const facts = { reason: 'missing_package', cause };
    throw notExecuted('invalid_spec', `the package '${name}' is not installed`, hint, facts);
  }
}

/** A key pair of one NATS user. The configuration of the server has the public key only. */
export async function newUserPair(): Promise<{ readonly seed: string; readonly publicKey: string }> {
  const { nkeys } = await loadNats();
  const pair = nkeys.createUser();
  const made = { seed: Buffer.from(pair.getSeed()).toString('ascii'), publicKey: pair.getPublicKey() };
  pair.clear();
  return made;
}

export function connectError(error: unknown): HostError {
  if (isHostError(error)) return error;
  if (isRefusedKey(error)) return refusedKey(error);
  if (/tls|certificate|self.signed|SSL/i.test(textOf(error))) {
    const hint = 'check the certificate of the NATS server, and NODE_EXTRA_CA_CERTS for a private authority';
    return notExecuted('connect_failed', 'NATS: the TLS handshake failed', hint, { reason: 'tls', cause: error });
  }
  const hint = 'check that nats-server runs at this address';
  const facts = { reason: 'unreachable', cause: error };
  return notExecuted('connect_failed', 'the NATS server cannot be reached', hint, facts);
}

/** Why a connection ended. */
export function lostConnection(error: unknown): HostError {
  if (isRefusedKey(error)) return refusedKey(error);
  return new HostError('transport', 'the connection to the NATS server was lost', {
    ...{ execution: 'uncertain', ...(error ? { cause: error } : {}) },
  });
}

/** The server has no subscriber for the subject, so the message was not received. */
export const isNoResponders = (error: unknown): boolean =>
  (error as { isNoResponders?: () => boolean }).isNoResponders?.() === true;

export const bufferOf = (data: Uint8Array): Buffer => Buffer.from(data.buffer, data.byteOffset, data.byteLength);

const textOf = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error);
  return `${error.name} ${error.message} ${error.cause === undefined ? '' : textOf(error.cause)}`;
};

const isRefusedKey = (error: unknown): boolean =>
  error !== undefined && /Authorization|Authentication|Expired|Revoked/i.test(textOf(error));

const refusedKey = (cause: unknown): HostError => {
  const hint =
    'run hostler key nats, give nats-server the new configuration and reload it (hostler key nats --reload PID)';
  return notExecuted('unauthenticated', 'the NATS server refuses this key', hint, { reason: 'refused_key', cause });
};

function parsedUrl(url: string): URL {
  if (/^(?:nats|tls):\/\//.test(url) && URL.canParse(url)) return new URL(url);
  const hint = 'write it like tls://nats.example.com:4222';
  throw notExecuted('invalid_spec', 'url: it is not the address of a NATS server', hint, { field: 'url' });
}

/**
 * Runs functions together at the end of the turn of the event loop. The NATS client then writes all their messages to its socket at once.
 * Messages that different promises publish cost one write each, which took a fifth of the time of a busy host.
 */
export class TurnBatch {
  #functions: (() => void)[] = [];

  /** The function must not throw. */
  add(run: () => void): void {
    if (this.#functions.push(run) > 1) return;
    setImmediate(() => {
      const functions = this.#functions;
      this.#functions = [];
      for (const each of functions) each();
    });
  }
}

/** Reports each loss of the connection, and each time that it is back. */
export async function watchConnection(
  connection: NatsConnection,
  changed: (isConnected: boolean) => void,
): Promise<void> {
  for await (const { type } of connection.status())
    if (type === 'disconnect' || type === 'reconnect') changed(type === 'reconnect');
}
