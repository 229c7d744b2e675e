/** `connect` of hostler/worker, over WebSocket. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect } from '../../../src/broker/worker/index.js';
import type { HostError } from '../../../src/kernel/errors.js';
import { WebSocketPlace, workerKey } from './websocket-place.js';
import { outcomeOf } from './worker-rig.js';

let broker: WebSocketPlace;
beforeAll(async () => {
  broker = new WebSocketPlace();
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
  expect(tools.status()).toMatchObject({ state: 'ready', worker: 'w1', role: 'reader', connections: 1 });
  await tools.close();
  expect(tools.status().state).toBe('closed');
});

test('without a key, with a wrong key or with a wrong address it says so', async () => {
  expect(await errorOf(connect({ broker: broker.url }))).toMatchObject({ code: 'invalid_spec' });
  expect(await errorOf(connect({ broker: broker.url, key: 'x'.repeat(40) }))).toMatchObject({
    code: 'unauthenticated',
  });
  expect(await errorOf(connect({ broker: 'ftp://somewhere', key: workerKey }))).toMatchObject({ code: 'invalid_spec' });
  const away = await errorOf(connect({ broker: 'ws://127.0.0.1:9/broker', key: workerKey, connectMs: 300 }));
  expect(away).toMatchObject({ code: 'connect_failed', retryable: true });
  expect(away.message).toContain('refused the connection: nothing listens there');
  expect(JSON.stringify(away)).not.toContain(workerKey);
});

test('D-41 a call in flight when the host stops and starts again runs once', async () => {
  const tools = await connect({ broker: broker.url, key: workerKey });
  const before = broker.host.ran.length;
  const times: number[] = [];
  tools.on('connected', (event) => void times.push(event.times));
  const pending = new Set<Promise<string>>();
  for (let n = 0; n < 20; n++) pending.add(outcomeOf(tools.execute('nova', 'click', { n })));
  await broker.stop();
  for (let n = 20; n < 40; n++) pending.add(outcomeOf(tools.execute('nova', 'click', { n })));
  await broker.start();
  const outcomes = await Promise.all(pending);
  expect(outcomes).toEqual(Array.from({ length: 40 }, (_, n) => `click {"n":${n}}`));
  expect(broker.host.ran).toHaveLength(before + 40);
  // Calls that the stopped host had not read do not count as sent.
  expect(broker.host.sendings.filter(({ request }) => request.sentBefore)).toEqual([]);
  expect(times).toEqual([2]);
  await tools.close();
});

test('a key that would go to another machine in the clear is not sent', async () => {
  const error = await errorOf(connect({ broker: 'ws://broker.example/broker', key: workerKey }));
  expect(error).toMatchObject({ code: 'invalid_spec' });
  expect(error.message).toContain('in the clear');
});
