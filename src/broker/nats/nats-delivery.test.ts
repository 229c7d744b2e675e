import { expect, test } from 'vitest';
import { HostError } from '../../kernel/errors.js';
import type { NatsConnection, NatsMessage } from './nats-connection.js';
import type { DeliveryParts, NatsDelivery } from './nats-delivery.js';
import type { NatsJournal } from './nats-journal.js';
import { namesOf } from './nats-names.js';
import { NatsParcel } from './nats-parcel.js';

const ackSubject = '$JS.ACK.s.c.1.7.7.1700000000000000000.0';

function delivered(confirmed: Promise<NatsMessage>) {
  const said: string[] = [];
  const connection: Partial<NatsConnection> = {
    ask: (subject, word) => {
      said.push(`ask ${subject} ${word}`);
      return confirmed;
    },
    keep: async (_, body) => {
      said.push(`keep ${body}`);
      return { kind: 'there' };
    },
    tell: (subject, word) => void said.push(`tell ${subject} ${word}`),
    tellSoon: (subject, word) => void said.push(`tell ${subject} ${word}`),
  };
  const journal: Partial<NatsJournal> = { isKept: () => false, forget: () => void said.push('forget') };
  const names = namesOf('h');
  const parts: DeliveryParts = {
    ...{ connection: connection as NatsConnection, journal: journal as NatsJournal, allNames: names },
    ...{
      names: names.of('w'),
      senderNow: () => ({ mailbox: 'w', role: undefined }),
      now: () => new Date(0),
      sweep: () => {},
    },
  };
  const message = { subject: `${names.of('w').requests}k`, reply: ackSubject, data: Buffer.from('1000\n{}') };
  let settled = 0;
  const parcel = new NatsParcel(message as unknown as NatsMessage, parts, () => void settled++);
  const [delivery] = parcel.requests as [NatsDelivery];
  return { delivery, said, settled: () => settled };
}

test('D-40 what is refused is over at the server before its worker is told', async () => {
  let confirm = (_: NatsMessage) => {};
  const { delivery, said, settled } = delivered(new Promise((resolve) => (confirm = resolve)));
  const refused = delivery.refuse('{}');
  await Promise.resolve();
  expect([said, settled()]).toEqual([[`ask ${ackSubject} +ACK`], 0]);
  confirm({} as NatsMessage);
  await refused;
  delivery.ack();
  delivery.release(0, 'late');
  expect([said, settled()]).toEqual([[`ask ${ackSubject} +ACK`, 'forget', 'keep {}'], 1]);
});

test('D-40 where the server does not confirm it, its worker is told nothing, and it is given back', async () => {
  const { delivery, said, settled } = delivered(Promise.reject(new HostError('transport', 'the connection is gone')));
  await expect(delivery.refuse('{}')).rejects.toMatchObject({ code: 'transport' });
  expect([said, settled()]).toEqual([[`ask ${ackSubject} +ACK`], 0]);
  expect(delivery.isOwed).toBe(true);
  delivery.giveBack(200);
  expect([said.length, settled(), delivery.isOwed]).toEqual([3, 1, false]);
  await expect(delivery.refuse('{}')).rejects.toMatchObject({ details: { reason: 'not_owed' } });
});
