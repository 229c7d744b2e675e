/** What can go wrong on a connection to a NATS server, in the words of our table, and what is known of what was sent. */
import { HostError, isHostError } from '../../kernel/errors.js';
import { messageBytesMax } from '../ports.js';

export const unsent = { execution: 'not_executed' } as const;

const isRefusal = (error: unknown): boolean => {
  const said = error instanceof Error ? `${error.name} ${error.message}` : String(error);
  return /Authorization|Authentication|Expired|Revoked/i.test(said);
};

const refusal = (cause: unknown): HostError =>
  new HostError('unauthenticated', 'the NATS server refuses this key', {
    ...unsent,
    hint: "look at the key and at the users in the server's configuration",
    cause,
  });

export function unreachable(cause: unknown): HostError {
  if (isHostError(cause)) return cause;
  if (isRefusal(cause)) return refusal(cause);
  return new HostError('connect_failed', 'the NATS server cannot be reached', {
    ...unsent,
    hint: 'look whether it runs at that address',
    cause,
  });
}

export function lossOf(why: unknown, refused: unknown): HostError {
  const cause = why ?? refused;
  if (isRefusal(why) || isRefusal(refused)) return refusal(cause);
  return new HostError('transport', 'the connection to the NATS server was lost', { execution: 'uncertain', cause });
}

/** Somebody has it, or may: whatever went wrong afterwards says nothing of that. */
export const inDoubt = (error: unknown): unknown =>
  isHostError(error) ? error.with({ execution: 'uncertain' }) : error;

/** It is not for us to say what became of it: it comes again, and then is looked for. */
export const claimedMeanwhile = (): HostError =>
  new HostError('transport', 'the call was claimed meanwhile', { execution: 'uncertain' });

export const gone = (): HostError => new HostError('transport', 'the connection to the NATS server is closed', unsent);

export const noReceipt = (): HostError =>
  new HostError('timeout', 'the NATS server gave no receipt in time', {
    execution: 'uncertain',
    hint: 'what was sent may be kept: send it again under the same id',
  });

export const nobodyThere = (subject: string): HostError =>
  new HostError('connect_failed', `the NATS server keeps nothing under '${subject.slice(0, 200)}'`, {
    ...unsent,
    reason: 'no_stream',
    hint: 'start a host that has this mailbox in its configuration, or look at the permissions of the key',
  });

export const unreadableAnswer = (subject: string, cause: unknown): HostError =>
  new HostError('protocol_error', `what answered to '${subject.slice(0, 200)}' cannot be read`, {
    execution: 'uncertain',
    hint: 'look who else answers on the NATS server',
    cause,
  });

export const untaken = (cause: unknown): HostError =>
  new HostError('protocol_error', 'a message of the NATS server could not be taken', {
    hint: 'look who else writes to the subjects of Hostler',
    cause,
  });

export const forbidden = (): HostError =>
  new HostError('denied', 'the NATS server does not let this key send there', {
    ...unsent,
    hint: "look at the mailbox of the key in the server's configuration",
  });

export const tooManyWait = (actual: number): HostError =>
  new HostError('overloaded', `${actual} messages wait for their receipt`, {
    ...unsent,
    reason: 'receipts',
    actual,
    hint: 'try again when some of them came',
  });

/** `what` was made here: for its call it changes nothing, whose end is known otherwise. */
export const tooLarge = (what: 'reply' | 'manifest', actual: number): HostError =>
  new HostError('result_too_large', `the ${what} is larger than ${messageBytesMax} bytes`, {
    limit: messageBytesMax,
    actual,
    hint:
      what === 'reply' ? 'ask for less at a time' : 'show this role fewer tools, or tools with shorter descriptions',
  });

export const overPayload = (actual: number, limit: number): HostError =>
  new HostError('result_too_large', 'the message is larger than the NATS server takes', {
    ...unsent,
    limit,
    actual,
    hint: "raise max_payload in the server's configuration, or send less",
  });
