/**
 * A row of the log as it is stored in a KV bucket: one line of JSON, and after it the bytes of the reply if there is one.
 * Invariant: a row says which write made it (`write`), so that a host can tell later whether a write without an answer was made.
 */
import { HostError } from '../../kernel/errors.js';
import type { CallState } from '../calls/call-log.js';

export interface StoredRow {
  readonly state: CallState;
  readonly owner: string;
  readonly digest: string;
  readonly attempts: number;
  /** Id of the store when the row was written. A row of an older copy has another one: it may have changed since. */
  readonly storeId: string;
  /** Unique for each write, over all hosts. */
  readonly write: string;
  /** The worker was revoked: the row gets no reply, and a call that was not begun counts as removed. */
  readonly isPurged: boolean;
  /** Sequence of the reply in the stream of bodies, and its length. */
  readonly body: { readonly seq: number; readonly length: number } | undefined;
  /** A reply that is in the row itself. */
  readonly inline: Buffer | undefined;
}

export const isOutcome = (state: CallState): boolean => state !== 'received' && state !== 'running';

const states: readonly CallState[] = ['received', 'running', 'done', 'uncertain', 'refused'];

export function writeRow({
  state,
  owner,
  digest,
  attempts,
  storeId,
  write,
  isPurged,
  body,
  inline,
}: StoredRow): Buffer {
  const head = JSON.stringify({
    ...{ s: state, o: owner, d: digest, a: attempts, i: storeId, w: write },
    ...(isPurged ? { p: 1 } : {}),
    ...(body ? { b: [body.seq, body.length] } : {}),
  });
  return inline ? Buffer.concat([Buffer.from(`${head}\n`), inline]) : Buffer.from(head);
}

export function readRow(bytes: Buffer): StoredRow {
  try {
    const end = bytes.indexOf(10);
    const text = end < 0 ? bytes : bytes.subarray(0, end);
    const { s, o, d, a, i, w, p, b } = JSON.parse(text.toString()) as Record<string, unknown>;
    const state = states.find((each) => each === s);
    if (state === undefined || typeof o !== 'string' || typeof d !== 'string' || typeof a !== 'number')
      throw new Error('a member is missing');
    const [seq, length] = (b ?? []) as number[];
    return {
      ...{ state, owner: o, digest: d, attempts: a, storeId: String(i), write: String(w), isPurged: p === 1 },
      body: seq === undefined || length === undefined ? undefined : { seq, length },
      inline: end < 0 ? undefined : bytes.subarray(end + 1),
    };
  } catch (cause) {
    throw new HostError('protocol_error', 'a row of the log of calls on the NATS server cannot be read', {
      ...{
        execution: 'uncertain',
        cause,
        hint: 'run one version of Hostler on all hosts, and let no other program write there',
      },
    });
  }
}
