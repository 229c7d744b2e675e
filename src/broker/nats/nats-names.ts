/**
 * What things are called on a NATS server: subjects, streams and consumers of each mailbox. Host, worker and the server's
 * configuration take every name from here, so that what one says is what another may.
 *
 * Invariant: a mailbox is one token of a subject, and no two mailboxes have the same one.
 */
import { HostError } from '../../kernel/errors.js';
import { idPattern, mailboxPattern } from '../ports.js';

export const defaultPrefix = 'hostler';
const prefixPattern = /^[a-z][a-z0-9_]{0,31}$/;

export interface MailboxNames {
  readonly mailbox: string;
  /** `<requests><id>`: what a worker sends. */
  readonly requests: string;
  readonly requestStream: string;
  /** `<claims><id>`: who runs it. `<claims><bundle>.<n>`: who runs which of a bundle, in order. */
  readonly claims: string;
  readonly claimStream: string;
  /** `<records><id>`: the result of a claimed call, once. `<mail><id>.<n>`: a reply that is no record. */
  readonly records: string;
  readonly mail: string;
  /** `<bundleRecords><bundle>.<n>-<m>`: results of what the n-th claim of a bundle is for. */
  readonly bundleRecords: string;
  readonly replyStream: string;
  /** Where the server hands out all of them to the worker. */
  readonly outbox: string;
  readonly tell: string;
  readonly cancels: string;
  readonly joined: string;
  readonly manifest: string;
  /** Between connections of one worker: the newest one has the mailbox. */
  readonly takeover: string;
}

export interface Names {
  readonly prefix: string;
  readonly deadStream: string;
  readonly reasonStream: string;
  readonly manifestStream: string;
  readonly tellAll: string;
  readonly anyCancel: string;
  readonly anyJoined: string;
  readonly account: string;
  of(mailbox: string): MailboxNames;
  dead(mailbox: string, id: string): string;
  reason(mailbox: string, id: string): string;
  /** Where a process of a host says that it lives. */
  host(boot: string): string;
  accountOf(mailbox: string): string;
}

/** Of the consumer that all hosts share, and of the one that a worker's replies go out by. */
export const hostsConsumer = 'hosts';
export const workerConsumer = 'worker';

/** Dots part tokens. No mailbox has a tilde. */
const token = (name: string): string => name.replaceAll('.', '~');

export function namesOf(prefix: string = defaultPrefix): Names {
  if (!prefixPattern.test(prefix))
    throw new HostError('invalid_spec', 'prefix: must be lower-case letters, digits and underscores', {
      field: 'prefix',
    });
  const upper = prefix.toUpperCase();
  const known = new Map<string, MailboxNames>();
  return {
    prefix,
    deadStream: `${upper}_DEAD`,
    reasonStream: `${upper}_REASONS`,
    manifestStream: `${upper}_MANIFESTS`,
    tellAll: `${prefix}.tellall`,
    anyCancel: `${prefix}.cancel.*.*`,
    anyJoined: `${prefix}.joined.*`,
    account: upper,
    // Bounded by the mailboxes of a configuration: nobody asks for the names of others.
    of(mailbox) {
      const names = known.get(mailbox) ?? mailboxNames(prefix, upper, mailbox);
      known.set(mailbox, names);
      return names;
    },
    dead: (mailbox, id) => `${prefix}.dead.${token(mailbox)}.${id}`,
    reason: (mailbox, id) => `${prefix}.reason.${token(mailbox)}.${id}`,
    host: (boot) => `${prefix}.host.${boot}`,
    accountOf: (mailbox) => `${upper}_W_${token(mailbox)}`,
  };
}

function mailboxNames(prefix: string, upper: string, mailbox: string): MailboxNames {
  if (!mailboxPattern.test(mailbox))
    throw new HostError('invalid_spec', `mailbox: must match ${mailboxPattern.source}`, { field: 'mailbox' });
  const box = token(mailbox);
  return {
    mailbox,
    requests: `${prefix}.req.${box}.`,
    requestStream: `${upper}_REQUESTS_${box}`,
    claims: `${prefix}.claim.${box}.`,
    claimStream: `${upper}_CLAIMS_${box}`,
    records: `${prefix}.rep.${box}.r.`,
    mail: `${prefix}.rep.${box}.m.`,
    bundleRecords: `${prefix}.rep.${box}.b.`,
    replyStream: `${upper}_REPLIES_${box}`,
    outbox: `${prefix}.out.${box}`,
    tell: `${prefix}.tell.${box}`,
    cancels: `${prefix}.cancel.${box}.`,
    joined: `${prefix}.joined.${box}`,
    manifest: `${prefix}.manifest.${box}`,
    takeover: `${prefix}.takeover.${box}`,
  };
}

/** The mailbox in the n-th token; undefined when it cannot be one. */
export function mailboxIn(subject: string, at: number): string | undefined {
  const mailbox = subject.split('.')[at]?.replaceAll('~', '.');
  return mailbox !== undefined && mailboxPattern.test(mailbox) ? mailbox : undefined;
}

/** Throws before an id becomes a part of a subject. */
export function checkId(id: string): void {
  if (idPattern.test(id)) return;
  throw new HostError('invalid_request', 'id: must be 1 to 128 letters, digits, dashes and underscores', {
    field: 'id',
    execution: 'not_executed',
  });
}
