import { expect, test } from 'vitest';
import { systemClock } from '../../kernel/clock.js';
import { NatsConnection, type NatsMessage } from './nats-connection.js';

/** A server that answers nothing. */
function connected() {
  let end = (_why: unknown) => {};
  let complain = (_error: Error) => {};
  const problems: unknown[] = [];
  const callbacks = new Map<string, (error: Error | null, message: NatsMessage) => void>();
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
    subscribe(subject: string, { callback }: { callback(error: Error | null, message: NatsMessage): void }) {
      callbacks.set(subject, callback);
      complain = (error) => callback(error, undefined as unknown as NatsMessage);
      return { drain: async () => {} };
    },
    async *status() {},
  };
  const connection = new NatsConnection(client, systemClock, '_INBOX.x', (error) => problems.push(error));
  connection.subscribe('x', () => {});
  /** As the client says what came. It reads nothing more after a callback that throws. */
  const come = (subscribed: string, message: NatsMessage) => callbacks.get(subscribed)?.(null, message);
  return { connection, end, complain, come, problems };
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

const readable = (subject: string): NatsMessage => ({ subject, data: new Uint8Array() });
/** As the client has one whose headers it cannot read. */
const unreadable = (subject: string): NatsMessage => ({
  ...readable(subject),
  get headers(): never {
    throw new Error("' ' is not a valid character in a header name");
  },
});

test('whoever fails over a message is told of, and what comes next is heard', () => {
  const { connection, come, problems } = connected();
  const heard: string[] = [];
  connection.subscribe('y.*', ({ subject, headers }) => {
    if (headers === undefined) heard.push(subject);
  });
  come('y.*', unreadable('y.1'));
  come('y.*', readable('y.2'));
  expect(heard).toEqual(['y.2']);
  expect(problems).toMatchObject([{ code: 'protocol_error', cause: { message: expect.stringContaining('header') } }]);
});

test('an answer that cannot be read is told to whoever asked', async () => {
  const { connection, come, problems } = connected();
  const asked = connection.keep('hostler.claim.w1.k', '{}');
  come('_INBOX.x.a.*', unreadable('_INBOX.x.a.1'));
  await expect(asked).rejects.toMatchObject({ code: 'protocol_error', details: { execution: 'uncertain' } });
  expect(problems).toEqual([]);
});
