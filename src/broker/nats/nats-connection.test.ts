import { expect, test } from 'vitest';
import { systemClock } from '../../kernel/clock.js';
import { NatsConnection, type NatsMessage } from './nats-connection.js';

/** A server that answers nothing. */
function connected() {
  let end = (_why: unknown) => {};
  let complain = (_error: Error) => {};
  const over = new Promise<unknown>((resolve) => {
    end = resolve;
  });
  const client = {
    info: { server_id: 's', max_payload: 1_000, version: '2.10.0', jetstream: true },
    closed: () => over,
    close: async () => end(undefined),
    isClosed: () => false,
    flush: async () => {},
    publish: () => {},
    subscribe(_subject: string, { callback }: { callback(error: Error | null, message: NatsMessage): void }) {
      complain = (error) => callback(error, undefined as unknown as NatsMessage);
      return { drain: async () => {} };
    },
    async *status() {},
  };
  const connection = new NatsConnection(client, systemClock, '_INBOX.x');
  connection.subscribe('x', () => {});
  return { connection, end, complain };
}

const ends = [
  ['the key is taken out', 'unauthenticated'],
  ['the server does not let it hear any more', 'denied'],
  ['the connection is lost', 'transport'],
];

test.each(ends)('D-40 what waits for its receipt may have arrived, also when %s', async (_, code) => {
  const { connection, end, complain } = connected();
  const asked = connection.keep('hostler.claim.w1.k', '{}');
  if (code === 'unauthenticated') end(new Error('Authentication Expired'));
  else if (code === 'denied') complain(new Error('permissions violation'));
  else end(undefined);
  await expect(asked).rejects.toMatchObject({ code, details: { execution: 'uncertain' } });
  expect(await connection.closed).toMatchObject({ code });
  // What is asked for afterwards is not sent.
  if (code !== 'transport')
    await expect(connection.keep('hostler.claim.w1.k', '{}')).rejects.toMatchObject({
      ...{ code, details: { execution: 'not_executed' } },
    });
});
