/**
 * Opens a connection to a NATS server: with a key, and with the client's package, which is optional.
 * Not here: what the connection can do (nats-connection.ts), coming back after a loss: the client's own reconnecting is off,
 * because it would hide from the sides that what was under way is lost.
 *
 * Invariant: nothing goes to another machine in the clear (private-way.ts).
 */
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import type { Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { importPeer } from '../../kernel/import-peer.js';
import { requirePrivateWay } from '../private-way.js';
import { type NatsClient, NatsConnection } from './nats-connection.js';
import { unreachable, unsent } from './nats-failures.js';

const connectMs = 5_000;
const pingMs = 15_000;

/** Its package is optional, so no type of it may stand in ours. */
interface NatsModule {
  connect(options: object): Promise<unknown>;
  createInbox(): string;
  nkeyAuthenticator(seed: Uint8Array): unknown;
  readonly nkeys: { createUser(): { getSeed(): Uint8Array; getPublicKey(): string; clear(): void } };
}

export interface NatsAddress {
  /** `nats://host:port` or `tls://host:port`. */
  readonly url: string;
  /** A seed (`SU…`), or `user:password`. Undefined: the server lets anybody in, which is for tests. */
  readonly key: string | undefined;
  readonly clock: Clock;
  /** What operators of the server see. */
  readonly name: string;
  /** Without TLS also to other machines. */
  readonly insecure?: boolean | undefined;
  /** A message that nobody could take; the connection goes on. */
  readonly onProblem?: ((error: HostError) => void) | undefined;
}

export async function connectNats(
  { url, key, clock, name, insecure, onProblem }: NatsAddress,
  signal: CancelSignal,
): Promise<NatsConnection> {
  const { connect, nkeyAuthenticator, createInbox } = await loadNatsClient();
  const isSeed = key?.startsWith('SU') ?? false;
  const colon = key?.indexOf(':') ?? -1;
  if (key !== undefined && !isSeed && colon < 1)
    throw new HostError('invalid_spec', 'key: must be a seed of a NATS user (SU…) or user:password', {
      field: 'key',
      hint: 'make a pair with hostler key add NAME --nats --key-file FILE',
    });
  requirePrivateWay(urlOf(url), insecure);
  if (signal.aborted) throw new HostError('cancelled', 'the connection is not wanted any more', unsent);
  try {
    const client = (await connect({
      servers: url,
      name,
      reconnect: false,
      timeout: connectMs,
      pingInterval: pingMs,
      maxPingOut: 1,
      noAsyncTraces: true,
      ignoreClusterUpdates: true,
      ...(url.startsWith('tls:') ? { tls: {} } : {}),
      ...(isSeed ? { authenticator: nkeyAuthenticator(new TextEncoder().encode(key)) } : {}),
      ...(key !== undefined && !isSeed ? { user: key.slice(0, colon), pass: key.slice(colon + 1) } : {}),
    })) as NatsClient;
    const connection = new NatsConnection(client, clock, createInbox(), onProblem);
    if (!signal.aborted) return connection;
    await connection.close();
  } catch (error) {
    throw unreachable(error);
  }
  throw new HostError('cancelled', 'the connection is not wanted any more', unsent);
}

export async function loadNatsClient(): Promise<NatsModule> {
  try {
    return (await importPeer('@nats-io/transport-node')) as NatsModule;
  } catch (cause) {
    throw new HostError('invalid_spec', "the package '@nats-io/transport-node' is not installed", {
      reason: 'missing_package',
      ...unsent,
      hint: 'run npm install @nats-io/transport-node@3 beside Hostler',
      cause,
    });
  }
}

function urlOf(address: string): URL {
  const url = address.includes('://') ? address : `nats://${address}`;
  if (URL.canParse(url)) return new URL(url);
  throw new HostError('invalid_spec', 'the address of the NATS server cannot be read', {
    field: 'url',
    ...unsent,
    hint: 'write it like tls://host:4222',
  });
}
