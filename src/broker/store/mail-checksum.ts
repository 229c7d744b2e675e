/**
 * What a row must add up to. A disk that returns other bytes than were written is found out when the row is read.
 *
 * Invariants: the sum of a mail's head covers its place and the sum of its body, so that the head can be checked without
 * reading the body; fields that are next to each other cannot be read as one another.
 */
import { crc32 } from 'node:zlib';
import { compositeKey } from '../../policy/composite-key.js';

export const bodySum = (body: Uint8Array): number => crc32(body);

export interface SummedHead {
  readonly seq: number;
  readonly dest: string;
  readonly sender: string;
  readonly role: string | null;
  readonly id: string;
  readonly kind: number;
  readonly sent_at: number;
  readonly expires_at: number | null;
  readonly body_sum: number;
}

export const headSum = (head: SummedHead): number => headSumWith(head, compositeKey(head.dest, head.sender, head.id));

/** The same for who has the joint key of its names already. */
export const headSumWith = (head: Omit<SummedHead, 'dest' | 'sender' | 'id'>, names: string): number =>
  crc32(
    `${head.seq} ${head.kind} ${head.sent_at} ${head.expires_at} ${head.body_sum} ${head.role === null ? '-' : compositeKey(head.role)} ${names}`,
  );

export interface SummedCall {
  readonly mailbox: string;
  readonly call_key: string;
  readonly hash: string;
  readonly boot: number;
  readonly remember_until: number;
  readonly reply: Uint8Array | null;
}

export const callSum = (call: SummedCall): number =>
  crc32(
    `${call.boot} ${call.remember_until} ${compositeKey(call.mailbox, call.call_key, call.hash)}`,
    call.reply === null ? 1 : crc32(call.reply),
  );
