/**
 * Frames of a client, read by the broker; and how a client writes them.
 * Not here: what is done about one (session.ts), frames of the broker (broker-frames.ts).
 *
 * Invariant: what comes out was checked member by member; what is refused is refused by name, and nothing of it is quoted.
 */
import { isObject } from '../../wire/json-members.js';
import { joined } from '../messages.js';
import { ttlMsMax } from '../ports.js';
import type { Claim } from './credentials.js';
import { idOf, type Members, mailboxOf, scanFrame, textOf, wholeOf } from './frame-members.js';
import { bodyBytesMax, keyCharsMax, reasonCharsMax } from './limits.js';

export const frameVersion = 1;
const delayMsMax = 3_600_000;

export interface Deliver {
  readonly kind: 'deliver';
  readonly id: string;
  readonly type: 'request' | 'reply';
  readonly to: string;
  readonly ttlMs: number | undefined;
  /** Of a host: the request that it replies to, which is over with it. */
  readonly answers?: Held | undefined;
  readonly body: Buffer;
}

export interface Hello extends Claim {
  /** Of a host: the same over all connections of one process, and of no other. */
  readonly instance: string | undefined;
}

/** Which handing out of which message it is about. */
export interface Held {
  readonly seq: number;
  readonly lease: string;
}

export type ClientFrame =
  | ({ readonly kind: 'hello' } & Hello)
  | Deliver
  | { readonly kind: 'subscribe' }
  | ({ readonly kind: 'ack' } & Held)
  | ({ readonly kind: 'release'; readonly delayMs: number; readonly reason: string } & Held)
  | { readonly kind: 'tell'; readonly to: string | undefined; readonly body: Buffer }
  | { readonly kind: 'cancel'; readonly to: string; readonly id: string };

/** `refused`: one message of it, which can be named. `bad`: nobody can say what it was. */
export type ReadClientFrame =
  | ClientFrame
  | {
      readonly kind: 'refused';
      readonly id: string;
      readonly to: string;
      readonly field: string;
      readonly what: string;
    }
  | { readonly kind: 'bad'; readonly field: string; readonly what: string };

const leasePattern = /^[A-Za-z0-9_.-]{1,64}$/;

export function readClientFrame(bytes: Buffer, valuesMax: number): ReadClientFrame {
  const scanned = scanFrame(bytes, valuesMax);
  const { members } = scanned;
  const kind = textOf(members.kind);
  if (!scanned.isWhole) {
    const what = scanned.problem === 'too_deep' ? 'is nested too deep' : 'has too many values';
    if (scanned.problem !== 'malformed' && kind === 'deliver') return refusedDeliver(members, 'body', what);
    return bad('frame', 'is not one JSON object with each member once');
  }
  switch (kind) {
    case 'hello':
      return readHello(members);
    case 'deliver':
      return readDeliver(members);
    case 'subscribe':
      return { kind };
    case 'ack': {
      const held = readHeld(members);
      return held ? { kind, ...held } : bad('ack', 'must have seq and lease');
    }
    case 'release':
      return readRelease(members);
    case 'tell':
      return readTell(members);
    case 'cancel': {
      const [to, id] = [mailboxOf(members.to), idOf(members.id)];
      return to !== undefined && id !== undefined ? { kind, to, id } : bad('cancel', 'must have to and id');
    }
    default:
      return bad('kind', 'is not known');
  }
}

function readHello({ v, key, mailbox, role, instance }: Members): ReadClientFrame {
  if (wholeOf(v, 0, 1_000_000) !== frameVersion) return bad('v', `must be ${frameVersion}`);
  const text = textOf(key);
  if (text === undefined || text.length > keyCharsMax) return bad('key', 'must be a text');
  const claimed = { mailbox: textOf(mailbox), role: textOf(role) };
  if ((mailbox && claimed.mailbox === undefined) || (role && claimed.role === undefined))
    return bad('hello', 'must have texts in mailbox and role');
  const named = idOf(instance);
  if (instance && named === undefined)
    return bad('instance', 'must be 1 to 128 letters, digits, dashes and underscores');
  return { kind: 'hello', key: text, ...claimed, instance: named };
}

function readDeliver(members: Members): ReadClientFrame {
  const id = idOf(members.id);
  const to = mailboxOf(members.to);
  if (id === undefined || to === undefined) return bad('deliver', 'must have an id and a mailbox it goes to');
  const type = textOf(members.type);
  if (type !== 'request' && type !== 'reply') return refusedDeliver(members, 'type', 'must be request or reply');
  const ttlMs = members.ttlMs && wholeOf(members.ttlMs, 0, ttlMsMax);
  if (members.ttlMs && ttlMs === undefined)
    return refusedDeliver(members, 'ttlMs', `must be a whole number from 0 to ${ttlMsMax}`);
  const { body } = members;
  if (!isObject(body)) return refusedDeliver(members, 'body', 'must be an object');
  if (body.length > bodyBytesMax) return refusedDeliver(members, 'body', `has more than ${bodyBytesMax} bytes`);
  const answers = members.lease && readHeld(members);
  if (members.lease && !answers) return refusedDeliver(members, 'lease', 'must be one, with the number of its message');
  return { kind: 'deliver', id, type, to, ttlMs, answers, body };
}

function refusedDeliver(members: Members, field: string, what: string): ReadClientFrame {
  const [id, to] = [idOf(members.id), mailboxOf(members.to)];
  return id !== undefined && to !== undefined ? { kind: 'refused', id, to, field, what } : bad(field, what);
}

function readHeld({ seq, lease }: Members): Held | undefined {
  const [number, text] = [wholeOf(seq, 1, Number.MAX_SAFE_INTEGER), textOf(lease)];
  return number !== undefined && text !== undefined && leasePattern.test(text)
    ? { seq: number, lease: text }
    : undefined;
}

function readRelease(members: Members): ReadClientFrame {
  const held = readHeld(members);
  const delayMs = wholeOf(members.delayMs, 0, delayMsMax);
  const reason = textOf(members.reason);
  if (!held || delayMs === undefined || reason === undefined)
    return bad('release', 'must have seq, lease, delayMs and reason');
  return { kind: 'release', ...held, delayMs, reason: reason.slice(0, reasonCharsMax) };
}

function readTell({ to, body }: Members): ReadClientFrame {
  const mailbox = to && mailboxOf(to);
  if ((to && mailbox === undefined) || !isObject(body) || body.length > bodyBytesMax)
    return bad('tell', 'must have an object as body, and a mailbox in to or none');
  return { kind: 'tell', to: mailbox, body };
}

const bad = (field: string, what: string): ReadClientFrame => ({ kind: 'bad', field, what });

export const helloFrame = (hello: Partial<Hello> & Pick<Hello, 'key'>): Buffer =>
  Buffer.from(JSON.stringify({ kind: 'hello', v: frameVersion, ...hello }));

export const subscribeFrame = (): Buffer => Buffer.from('{"kind":"subscribe"}');

/** The body last, so that a refusal can say which message it is about even when the body cannot be read. */
export const deliverFrame = ({ body, answers, ...head }: Deliver): Buffer =>
  joined(`${JSON.stringify({ ...head, ...answers }).slice(0, -1)},"body":`, body, '}');

export const ackFrame = ({ seq, lease }: Held): Buffer => Buffer.from(`{"kind":"ack","seq":${seq},"lease":"${lease}"}`);

export const releaseFrame = ({ seq, lease }: Held, delayMs: number, reason: string): Buffer =>
  Buffer.from(
    JSON.stringify({
      kind: 'release',
      seq,
      lease,
      delayMs: Math.min(Math.max(Math.ceil(delayMs), 0), delayMsMax),
      reason: reason.slice(0, reasonCharsMax),
    }),
  );

export const tellFrame = (to: string | undefined, body: Buffer): Buffer =>
  joined(`${JSON.stringify({ kind: 'tell', to }).slice(0, -1)},"body":`, body, '}');

export const cancelFrame = (to: string, id: string): Buffer => Buffer.from(JSON.stringify({ kind: 'cancel', to, id }));
