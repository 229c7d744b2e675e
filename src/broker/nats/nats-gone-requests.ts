/**
 * Has the server forget requests that it waits for an answer to and does not hold any more.
 * After a kill, nats-server may count such among those that are handed out. Each time their wait is over it tries to hand them
 * out again, finds nothing, and hands out nothing else in that turn: with some of them, what waits is never handed out.
 *
 * Invariant: what is acknowledged here is in no stream, so there is nothing that could still be run.
 */
import type { NatsConnection } from './nats-connection.js';
import { hostsConsumer, type MailboxNames } from './nats-names.js';

/** Numbers that the server is asked for in one answer, of a few bytes each. */
const deletedMax = 100_000;
/** At a time, the lowest. Those above are looked at when a link is opened after the floor has risen past these. */
const goneMax = 10_000;

interface ConsumerInfo {
  readonly num_ack_pending?: number;
  readonly ack_floor?: { readonly stream_seq?: number };
  readonly delivered?: { readonly stream_seq?: number };
}

interface StreamState {
  readonly first_seq?: number;
  readonly num_deleted?: number;
  readonly deleted?: readonly number[];
}

export async function forgetGone(connection: NatsConnection, { requestStream }: MailboxNames): Promise<void> {
  const consumer = await connection.api<ConsumerInfo>(`CONSUMER.INFO.${requestStream}.${hostsConsumer}`);
  if (!consumer.num_ack_pending) return;
  const read = async (body?: object) =>
    (await connection.api<{ state?: StreamState }>(`STREAM.INFO.${requestStream}`, body)).state ?? {};
  const { num_deleted: deleted = 0 } = await read();
  const state = await read(deleted > deletedMax ? undefined : { deleted_details: true });
  const from = (consumer.ack_floor?.stream_seq ?? 0) + 1;
  // As the 0th that was handed out: a server that takes any other for the next in its order counts all up to it as answered.
  for (const seq of goneBetween(from, consumer.delivered?.stream_seq ?? 0, state))
    connection.tell(`$JS.ACK.${requestStream}.${hostsConsumer}.1.${seq}.0.1.0`, '+ACK');
}

/** Before the first that is held, and those in between that are not. */
export function goneBetween(from: number, to: number, { first_seq: first = 0, deleted = [] }: StreamState): number[] {
  const gone: number[] = [];
  for (let seq = from; seq <= to && seq < first && gone.length < goneMax; seq++) gone.push(seq);
  for (const seq of deleted) if (seq >= from && seq <= to && seq > first && gone.length < goneMax) gone.push(seq);
  return gone;
}
