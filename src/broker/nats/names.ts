/**
 * Names on a NATS server: subjects, buckets, streams and accounts. Host, worker and the generated server configuration use these, so that
 * they agree.
 *
 * Invariants: everything that a worker sends is below `hostler.in.<worker>.<epoch>`, and everything that it receives below
 * `hostler.out.<worker>.<epoch>`: its account imports these two and nothing else. A later worker of the same name has another epoch, so a
 * revoked worker receives nothing that is sent to the later one, also while nats-server still has the old configuration. No two names have
 * the same token.
 */
import type { WorkerMessage } from '../protocol/messages.js';

export const callsBucket = 'hostler_calls';
export const keysBucket = 'hostler_keys';
export type Bucket = typeof callsBucket | typeof keysBucket;
export const bodiesStream = 'HOSTLER_BODIES';
export const hostsAccount = 'HOSTLER_HOSTS';
export const queueGroup = 'hostler';
/** Key of the row with the id of the store. Rows of calls have three tokens. */
export const storeKey = 'store';

export const streamOf = (bucket: string): string => `KV_${bucket}`;
export const subjectOf = (bucket: Bucket, key: string): string => `$KV.${bucket}.${key}`;

/** One valid token of a subject. `=` begins an escaped byte. */
export const token = (name: string): string => (plain.test(name) ? name : escaped(name));

const plain = /^[A-Za-z0-9_-]*$/;
const escaped = (name: string): string =>
  name.replace(/[^A-Za-z0-9_-]/gu, (char) => Buffer.from(char).toString('hex').replace(/../g, '=$&'));

const nameOfToken = (text = ''): string => {
  if (plain.test(text)) return text;
  const bytes = text.replace(/=([0-9a-f]{2})/g, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
  return Buffer.from(bytes, 'latin1').toString();
};

/** Name and epoch of a worker: two tokens of its subjects and of the keys of its rows. Its account is named after them. */
export const workerTokens = (worker: string, epoch: string): string => `${token(worker)}.${token(epoch)}`;
export const rowKey = (worker: string, epoch: string, key: string): string =>
  `${workerTokens(worker, epoch)}.${token(key)}`;

export const bodySubject = (rowKeyOfCall: string): string => `hostler.body.${rowKeyOfCall}`;

type Operation = WorkerMessage['op'];

/** Subjects as a worker uses them. Its account maps them to subjects with its name and epoch. */
export const workerPublishSubject = (operation: Operation, session: string): string =>
  `hostler.in.${operation}.${session}`;
export const workerSubscribeSubjects = (session: string): readonly string[] => [
  `hostler.out.one.${session}`,
  'hostler.out.all',
];

/** Subjects as a host uses them. */
export const anyWorkerSubject = (operation: Operation): string => `hostler.in.*.*.${operation}.*`;
export const sessionSubject = (worker: string, epoch: string, session: string): string =>
  `hostler.out.${workerTokens(worker, epoch)}.one.${session}`;
export const workerSubject = (worker: string, epoch: string): string =>
  `hostler.out.${workerTokens(worker, epoch)}.all`;

/** A host answers requests on this subject while it runs. */
export const hostSubject = (owner: string): string => `hostler.host.${owner}`;
/** A host wrote another id of the store. */
export const storeChanged = 'hostler.store';

/** The sender of a message below `hostler.in`. */
export function senderOf(subject: string): { worker: string; epoch: string; session: string } {
  const tokens = subject.split('.');
  return { worker: nameOfToken(tokens[2]), epoch: nameOfToken(tokens[3]), session: tokens.at(-1) ?? '' };
}
