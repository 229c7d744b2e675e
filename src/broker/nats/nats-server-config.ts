/**
 * The text of a configuration for nats-server under which workers can do no more than they may.
 * Each worker has an account of its own, into which only what is its own is imported. Permissions alone would not do: a client
 * names the subject that the server answers to, so in one account with the streams it can have the server's answer to its own
 * message sent to any subject, that of emptying another's queue included.
 *
 * Invariant: no secret is in it, only public keys.
 */
import { nkeyPattern } from '../../config/keys.js';
import { HostError } from '../../kernel/errors.js';
import { mailboxPattern, messageBytesMax } from '../ports.js';
import { defaultPrefix, namesOf, workerConsumer } from './nats-names.js';
import { headBytes } from './nats-streams.js';

export interface NatsServerPlan {
  /** `address:port`. */
  readonly listen: string;
  readonly storeDir: string;
  /** Public keys of hosts (`U…`). */
  readonly hosts: readonly string[];
  /** One mailbox may have several keys: that is how one is changed without a gap. */
  readonly workers: readonly { readonly mailbox: string; readonly publicKey: string }[];
  readonly prefix?: string;
  /** What all streams together may take. */
  readonly maxFileBytes?: number;
  readonly tls?: { readonly certFile: string; readonly keyFile: string };
  /** For servers from 2.10 on: every write is on disk before it is acknowledged. 2.9 does not know the setting. */
  readonly isSyncedAlways?: boolean;
}

const defaultFileBytes = 64 * 1024 * 1024 * 1024;

export function natsServerConfig(plan: NatsServerPlan): string {
  const { listen, storeDir, hosts, workers, prefix = defaultPrefix, tls, maxFileBytes = defaultFileBytes } = plan;
  const names = namesOf(prefix);
  requireKeys(hosts, workers);
  const mailboxes = [...new Set(workers.map(({ mailbox }) => mailbox))];
  const exports = mailboxes.flatMap((mailbox) =>
    sharedWith(mailbox, prefix).map(
      ({ kind, subject }) => `      { ${kind}: ${text(subject)}, accounts: [${text(names.accountOf(mailbox))}] }`,
    ),
  );
  const accounts = mailboxes.map((mailbox) => {
    const users = workers.filter((worker) => worker.mailbox === mailbox);
    const shared = sharedWith(mailbox, prefix);
    const own = names.of(mailbox).takeover;
    const says = shared.filter(({ kind }) => kind === 'service').map(({ subject }) => subject);
    const hears = shared.filter(({ kind }) => kind === 'stream').map(({ subject }) => subject);
    const list = (subjects: readonly string[]) => subjects.map(text).join(', ');
    return `  ${text(names.accountOf(mailbox))} {
    users: [
${users
  .map(
    ({ publicKey }) => `      { nkey: ${publicKey}, permissions: {
          publish: { allow: [${list([...says, own])}] }
          subscribe: { allow: [${list([...hears, own, '_INBOX.>'])}] }
      } }`,
  )
  .join('\n')}
    ]
    imports: [
${shared.map(({ kind, subject }) => `      { ${kind}: { account: ${text(names.account)}, subject: ${text(subject)} } }`).join('\n')}
    ]
  }`;
  });
  return `listen: ${text(listen)}
max_payload: ${messageBytesMax + headBytes}
${tls ? `tls { cert_file: ${text(tls.certFile)}, key_file: ${text(tls.keyFile)} }\n` : ''}jetstream {
  store_dir: ${text(storeDir)}
  max_mem: 64M
  max_file: ${maxFileBytes}
${plan.isSyncedAlways === true ? '  sync_interval: always\n' : ''}}
accounts {
  ${text(names.account)} {
    jetstream: enabled
    users: [${hosts.map((key) => `{ nkey: ${key} }`).join(', ')}]
    exports: [
${exports.join('\n')}
    ]
  }
${accounts.join('\n')}
}
`;
}

/** All that a worker says to the hosts' account, and hears of it. */
function sharedWith(mailbox: string, prefix: string): { kind: 'service' | 'stream'; subject: string }[] {
  const all = namesOf(prefix);
  const names = all.of(mailbox);
  const services = [
    `${names.requests}*`,
    `${names.cancels}*`,
    names.joined,
    `$JS.ACK.${names.replyStream}.${workerConsumer}.>`,
    `$JS.API.DIRECT.GET.${all.manifestStream}.${names.manifest}`,
  ];
  const streams = [names.outbox, names.tell, all.tellAll];
  return [
    ...services.map((subject) => ({ kind: 'service' as const, subject })),
    ...streams.map((subject) => ({ kind: 'stream' as const, subject })),
  ];
}

function requireKeys(hosts: readonly string[], workers: NatsServerPlan['workers']): void {
  const keys = [...hosts, ...workers.map(({ publicKey }) => publicKey)];
  const bad = keys.findIndex((key) => !nkeyPattern.test(key));
  if (bad >= 0)
    throw refused(
      'publicKey',
      `the ${bad + 1}. key is not the public key of a NATS user`,
      'give U…, never the seed SU…',
    );
  if (new Set(keys).size < keys.length) throw refused('publicKey', 'one key is there twice', 'make one key for each');
  if (workers.some(({ mailbox }) => !mailboxPattern.test(mailbox)))
    throw refused('mailbox', `must match ${mailboxPattern.source}`, 'use another name');
}

/** A text of the server's configuration: what could end it is refused, not quoted. */
function text(value: string): string {
  if (/["\\\p{Cc}]/u.test(value))
    throw refused('text', 'has a quote, a backslash or a control character', 'use another path');
  return `"${value}"`;
}

const refused = (field: string, what: string, hint: string): HostError =>
  new HostError('invalid_spec', `${field}: ${what}`, { field, hint });
