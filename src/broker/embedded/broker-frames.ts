/**
 * Frames of the broker, written by it and read by its clients. A client checks them too: what answers at an address need not be
 * the broker that was meant.
 * Not here: frames of a client (client-frames.ts), what is done about one (link.ts).
 *
 * Invariant: what comes out was checked member by member; what nobody here knows is nothing, and ends nothing.
 */
import type { HostError } from '../../kernel/errors.js';
import { isObject, uniqueMembers } from '../../wire/json-members.js';
import { joined } from '../messages.js';
import type { Sender } from '../ports.js';
import { readToldError } from '../told-error.js';
import { frameVersion, type Held } from './client-frames.js';
import { idOf, mailboxOf, scanFrame, textOf, truthOf, wholeOf } from './frame-members.js';

export interface Message extends Held {
  readonly id: string;
  readonly type: 'request' | 'reply';
  readonly from: Sender;
  readonly deliveries: number;
  /** It was in other hands than those of whoever gets it now. */
  readonly wasElsewhere: boolean;
  /** What is left, on its way out; below zero when it is over. Undefined: there is no end. */
  readonly deadlineMs: number | undefined;
  readonly body: Buffer;
}

export type BrokerFrame =
  | {
      readonly kind: 'welcome';
      readonly mailbox: string;
      readonly role: string | undefined;
      readonly epoch: string;
      /** To a host, where the broker does not know what it held before that. */
      readonly beganMsAgo: number | undefined;
    }
  | { readonly kind: 'subscribed' }
  | { readonly kind: 'delivered'; readonly id: string; readonly to: string }
  | { readonly kind: 'refused'; readonly id: string; readonly to: string; readonly error: HostError }
  | ({ readonly kind: 'message' } & Message)
  | { readonly kind: 'cancel'; readonly id: string; readonly from: Sender }
  | { readonly kind: 'joined'; readonly from: Sender }
  | { readonly kind: 'told'; readonly body: Buffer }
  | { readonly kind: 'error'; readonly error: HostError };

const plain = (frame: object): Buffer => Buffer.from(JSON.stringify(frame));

export const welcomeFrame = ({ mailbox, role }: Sender, epoch: string, beganMsAgo?: number): Buffer =>
  plain({ kind: 'welcome', v: frameVersion, mailbox, role, epoch, beganMsAgo });
export const subscribedFrame = (): Buffer => plain({ kind: 'subscribed' });
export const deliveredFrame = (id: string, to: string): Buffer => plain({ kind: 'delivered', id, to });
export const refusedFrame = (id: string, to: string, error: HostError): Buffer =>
  plain({ kind: 'refused', id, to, error: error.toJSON() });
export const cancelledFrame = ({ mailbox, role }: Sender, id: string): Buffer =>
  plain({ kind: 'cancel', id, from: { mailbox, role } });
export const joinedFrame = ({ mailbox, role }: Sender): Buffer => plain({ kind: 'joined', from: { mailbox, role } });
export const toldFrame = (body: Buffer): Buffer => joined('{"kind":"told","body":', body, '}');
export const errorFrame = (error: HostError): Buffer => plain({ kind: 'error', error: error.toJSON() });

export function messageFrame({ body, from, wasElsewhere, ...head }: Message): Buffer {
  const { mailbox, role } = from;
  // What is handed out for the first time was in nobody's hands: nothing need be said.
  const before = head.deliveries > 1 ? { wasElsewhere } : undefined;
  const text = JSON.stringify({ kind: 'message', ...head, ...before, from: { mailbox, role } });
  return joined(`${text.slice(0, -1)},"body":`, body, '}');
}

/** Undefined when it is none, or one that nobody here knows. */
export function readBrokerFrame(bytes: Buffer): BrokerFrame | undefined {
  const { isWhole, members } = scanFrame(bytes, Number.MAX_SAFE_INTEGER);
  if (!isWhole) return undefined;
  const kind = textOf(members.kind);
  switch (kind) {
    case 'welcome': {
      const [mailbox, epoch, role] = [mailboxOf(members.mailbox), textOf(members.epoch), textOf(members.role)];
      if (mailbox === undefined || epoch === undefined || (members.role && role === undefined)) return undefined;
      return { kind, mailbox, role, epoch, beganMsAgo: wholeOf(members.beganMsAgo, 0, Number.MAX_SAFE_INTEGER) };
    }
    case 'subscribed':
      return { kind };
    case 'delivered':
    case 'refused': {
      const [id, to] = [idOf(members.id), mailboxOf(members.to)];
      if (id === undefined || to === undefined) return undefined;
      return kind === 'delivered' ? { kind, id, to } : { kind, id, to, error: readError(members.error) };
    }
    case 'message':
      return readMessage(members);
    case 'cancel': {
      const [id, from] = [idOf(members.id), readSender(members.from)];
      return id !== undefined && from ? { kind, id, from } : undefined;
    }
    case 'joined': {
      const from = readSender(members.from);
      return from && { kind, from };
    }
    case 'told':
      return isObject(members.body) ? { kind, body: members.body } : undefined;
    case 'error':
      return { kind, error: readError(members.error) };
    default:
      return undefined;
  }
}

function readMessage(members: ReturnType<typeof scanFrame>['members']): BrokerFrame | undefined {
  const seq = wholeOf(members.seq, 1, Number.MAX_SAFE_INTEGER);
  const deliveries = wholeOf(members.deliveries, 1, Number.MAX_SAFE_INTEGER);
  const [lease, id, type, from] = [
    textOf(members.lease),
    idOf(members.id),
    textOf(members.type),
    readSender(members.from),
  ] as const;
  const deadlineMs = wholeOf(members.deadlineMs, Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
  const { body } = members;
  if (seq === undefined || deliveries === undefined || lease === undefined || id === undefined || !from)
    return undefined;
  if ((type !== 'request' && type !== 'reply') || !isObject(body)) return undefined;
  if (members.deadlineMs && deadlineMs === undefined) return undefined;
  // Whoever does not say it may not know: then it may have been anywhere.
  const wasElsewhere = truthOf(members.wasElsewhere) ?? deliveries > 1;
  return { kind: 'message', seq, lease, id, type, from, deliveries, wasElsewhere, deadlineMs, body };
}

function readSender(bytes: Buffer | undefined): Sender | undefined {
  const [box, named] = (bytes && uniqueMembers(bytes, ['mailbox', 'role'])) ?? [];
  const [mailbox, role] = [mailboxOf(box), textOf(named)];
  return mailbox === undefined || (named && role === undefined) ? undefined : { mailbox, role };
}

/** What is no error, or too large for one, is still the end of what it answers. Unless it says so, nobody knows what was done. */
function readError(bytes: Buffer | undefined): HostError {
  const read = isObject(bytes) && bytes.length <= errorBytesMax ? bytes : noWords;
  const error = readToldError(read);
  return error.details.execution === undefined ? error.with({ execution: 'uncertain' }) : error;
}

const errorBytesMax = 64 * 1024;
const noWords = Buffer.from('{}');
