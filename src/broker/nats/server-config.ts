/**
 * Configuration of nats-server for the hosts and workers of Hostler (`hostler key nats` prints it).
 * Each worker has its own account, which imports its own subjects. Permissions in one account are not enough: a client chooses the
 * reply subject of its requests, so it could direct a reply to any subject, e.g. to the JetStream API that purges a stream.
 * Many workers that reconnect at once on a busy machine need more than the 2 s that nats-server gives them to authenticate.
 * nats-server 2.9 must reload this configuration twice: the requests of an account that a reload adds reach no host until the next reload.
 *
 * Invariant: the configuration contains public keys only, and no secret.
 */
import { notExecuted } from '../../kernel/errors.js';
import { brokerLimits } from '../protocol/limits.js';
import { hostsAccount, workerTokens } from './names.js';

export interface NatsServerPlan {
  /** `address:port`. */
  readonly listen: string;
  readonly storeDir: string;
  /** Public keys of hosts (`U...`). */
  readonly hosts: readonly string[];
  /** A worker may have several keys, so that a key can be replaced while the worker stays connected. */
  readonly workers: readonly { readonly worker: string; readonly epoch: string; readonly publicKey: string }[];
  /** Size of all files of JetStream together. */
  readonly maxFileBytes?: number | undefined;
  readonly tls?: { readonly certFile: string; readonly keyFile: string } | undefined;
  /** Every write is on disk before it is acknowledged. Needs nats-server 2.10. */
  readonly syncsAlways?: boolean | undefined;
  /** `address:port` of the monitoring port, which shows whether every write is synced. */
  readonly monitor?: string | undefined;
}

/** Each of two buckets and one stream may have 256 MiB, and the file system needs room while blocks are rewritten. */
const fileBytes = 1024 ** 3;
/** The largest message, with the header of a row. */
export const payloadBytes = brokerLimits.messageBytes + 64 * 1024;

export function natsServerConfig(plan: NatsServerPlan): string {
  const { listen, storeDir, hosts, workers, tls, monitor, maxFileBytes = fileBytes } = plan;
  const accounts = new Map<string, string[]>();
  for (const { worker, epoch, publicKey } of workers) {
    const tokens = workerTokens(worker, epoch);
    accounts.set(tokens, [...(accounts.get(tokens) ?? []), publicKey]);
  }
  return `listen: ${quoted(listen)}
max_payload: ${payloadBytes}
ping_interval: "10s"
ping_max: 2
authorization { timeout: 10 }
${monitor === undefined ? '' : `http: ${quoted(monitor)}\n`}${tls ? `tls { cert_file: ${quoted(tls.certFile)}, key_file: ${quoted(tls.keyFile)} }\n` : ''}jetstream {
  store_dir: ${quoted(storeDir)}
  max_mem: 64M
  max_file: ${maxFileBytes}
${plan.syncsAlways === true ? '  sync_interval: always\n' : ''}}
accounts {
  ${quoted(hostsAccount)} {
    jetstream: enabled
    users: [${hosts.map((key) => `{ nkey: ${key} }`).join(', ')}]
    exports: [
      { service: "hostler.in.*.*.>" }
      { stream: "hostler.out.*.*.>" }
    ]
  }
${[...accounts].map(([tokens, publicKeys]) => accountText(tokens, publicKeys)).join('\n')}
}
`;
}

/** The worker uses subjects without its name and epoch; the imports of its account add both. */
function accountText(tokens: string, publicKeys: readonly string[]): string {
  const permissions = 'publish: { allow: ["hostler.in.>"] }, subscribe: { allow: ["hostler.out.>", "_INBOX.>"] }';
  const imported = (way: 'in' | 'out') =>
    `{ account: ${quoted(hostsAccount)}, subject: "hostler.${way}.${tokens}.>" }, to: "hostler.${way}.>"`;
  return `  "HOSTLER_W_${tokens}" {
    users: [
${publicKeys.map((key) => `      { nkey: ${key}, permissions: { ${permissions} } }`).join('\n')}
    ]
    imports: [
      { service: ${imported('in')} }
      { stream: ${imported('out')} }
    ]
  }`;
}

/** A value that could end the string is refused, because nats-server has no escape for it. */
function quoted(value: string): string {
  if (!/["\\\p{Cc}]/u.test(value)) return `"${value}"`;
  const message = 'path: has a quote, a backslash or a control character';
  throw notExecuted('invalid_spec', message, 'use another path', { field: 'path' });
}
