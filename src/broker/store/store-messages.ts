/**
 * Questions and answers on their way between the threads: bodies are laid end to end in one buffer, which changes hands without
 * being copied again.
 * Not here: what they mean (store-words.ts).
 *
 * Invariant: bodies are taken out in the order in which they were put in.
 */
import type { Mail, StoreState } from '../store-port.js';
import type { Answer, Operation, Refusal, StoreLimits } from './store-words.js';
import type { Owner } from './writer-lock.js';

/** What the thread is started with. */
export interface StoreThreadData {
  readonly folder: string;
  readonly limits: StoreLimits;
  readonly nowMs: number;
  readonly owner: Owner;
}

export interface Packed<T> {
  /** Each without its body, but with its length. */
  readonly items: T[];
  readonly bytes: Uint8Array;
}

export type ToThread = (Packed<Operation> & { readonly nowMs: number }) | { readonly close: true };

export type FromThread =
  | {
      readonly kind: 'opened';
      readonly state: StoreState;
      readonly beganAtMs: number | undefined;
      readonly problems: Refusal[];
    }
  | { readonly kind: 'refused'; readonly refusal: Refusal; readonly problems: Refusal[] }
  | {
      readonly kind: 'answered';
      readonly answers: Packed<Answer>;
      readonly state: StoreState;
      readonly problems: Refusal[];
    }
  | { readonly kind: 'failed'; readonly cause: string; readonly problems: Refusal[] };

/** In place of a body. */
type Length = number;

/** The objects in which bodies are, by what they are the body of. */
interface Bodied {
  body?: Buffer | Length;
  reply?: Buffer | Length;
}

export function pack<T extends Operation | Answer>(given: readonly T[]): Packed<T> {
  let length = 0;
  for (const item of given) for (const holder of bodiesIn(item)) length += (bodyOf(holder) as Buffer).length;
  const bytes = new Uint8Array(length);
  let at = 0;
  const items = given.map((item) => {
    const light = lightened(item, (body) => {
      bytes.set(body, at);
      at += body.length;
      return body.length;
    });
    return light;
  });
  return { items, bytes };
}

export function unpack<T extends Operation | Answer>({ items, bytes }: Packed<T>): T[] {
  let at = 0;
  for (const item of items) {
    for (const holder of bodiesIn(item)) {
      const name = holder.body === undefined ? 'reply' : 'body';
      const length = holder[name] as Length;
      holder[name] = Buffer.from(bytes.buffer, bytes.byteOffset + at, length);
      at += length;
    }
  }
  return items;
}

const bodyOf = (holder: Bodied) => holder.body ?? holder.reply;

function bodiesIn(item: Operation | Answer): readonly Bodied[] {
  if ('op' in item) {
    if (item.op === 'put') return [item.mail];
    return item.op === 'finish' ? [item] : [];
  }
  if ('mails' in item) return item.mails;
  if ('revived' in item) return item.revived ? [item.revived] : [];
  return 'claimed' in item && item.claimed.kind === 'done' ? [item.claimed] : [];
}

/** The same without the bytes: whoever gave it still has it, so it is not changed. */
function lightened<T extends Operation | Answer>(item: T, keep: (body: Buffer) => Length): T {
  const light = (mail: { body: Buffer }) => ({ ...mail, body: keep(mail.body) }) as unknown as Mail;
  const made = ((): unknown => {
    if ('op' in item) {
      if (item.op === 'put') return { ...item, mail: light(item.mail) };
      return item.op === 'finish' ? { ...item, reply: keep(item.reply) } : item;
    }
    if ('mails' in item) return { mails: item.mails.map(light) };
    if ('revived' in item) return { revived: item.revived && light(item.revived) };
    if ('claimed' in item && item.claimed.kind === 'done')
      return { claimed: { kind: 'done', reply: keep(item.claimed.reply) } };
    return item;
  })();
  return made as T;
}
