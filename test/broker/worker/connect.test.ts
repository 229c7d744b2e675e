/** `connect` of hostler/worker: an address and a key, and the tools are there. Over the embedded broker. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect } from '../../../src/broker/worker/index.js';
import type { HostError } from '../../../src/kernel/errors.js';
import { EmbeddedBroker, workerKey } from './embedded-broker.js';
import { outcomeOf } from './worker-rig.js';

let broker: EmbeddedBroker;
beforeAll(async () => {
  broker = new EmbeddedBroker();
  await broker.start();
});
afterAll(() => broker.remove());

const errorOf = (connecting: Promise<unknown>): Promise<HostError> =>
  connecting.then(
    () => expect.fail('it connected'),
    (error: HostError) => error,
  );

test.each([
  ['a key file', () => ({ keyFile: broker.keyFile })],
  ['a key', () => ({ key: workerKey })],
])('with %s it lists and calls', async (_what, key) => {
  const tools = await connect({ broker: broker.url, ...key() });
  expect(tools.list()).toMatchObject([{ server: 'nova', name: 'click' }]);
  expect(await outcomeOf(tools.execute('nova', 'click', { n: 1 }))).toBe('click {"n":1}');
  expect(tools.status()).toMatchObject({ state: 'ready', me: { mailbox: 'w1', role: 'reader' }, connections: 1 });
  await tools.close();
  expect(tools.status().state).toBe('closed');
});

test('without a key, with a wrong one, or with an address of nobody it says so', async () => {
  expect(await errorOf(connect({ broker: broker.url }))).toMatchObject({ code: 'invalid_spec' });
  expect(await errorOf(connect({ broker: broker.url, key: 'x'.repeat(40) }))).toMatchObject({
    code: 'unauthenticated',
  });
  expect(await errorOf(connect({ broker: 'ftp://somewhere', key: workerKey }))).toMatchObject({ code: 'invalid_spec' });
  const away = await errorOf(connect({ broker: 'ws://127.0.0.1:9/broker', key: workerKey, connectMs: 300 }));
  expect(away).toMatchObject({ code: 'connect_failed', retryable: true });
  expect(JSON.stringify(away)).not.toContain(workerKey);
});

test('a key that would go to another machine in the clear is not sent', async () => {
  const error = await errorOf(connect({ broker: 'ws://broker.example/broker', key: workerKey }));
  expect(error).toMatchObject({ code: 'invalid_spec' });
  expect(error.message).toContain('in the clear');
});
