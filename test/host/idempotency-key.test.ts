/** Calls with an idempotency key over a real host and a real log, also over a restart. */
import { chmodSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { keyedCalls } from '../../src/broker/keyed-calls.js';
import { createBroker } from '../../src/broker/serve-workers.js';
import type { Host } from '../../src/host/host.js';
import { systemClock } from '../../src/kernel/clock.js';
import { HostError } from '../../src/kernel/errors.js';
import { createHost } from '../../src/library/create-host.js';
import { withSmallDisk } from '../broker/store/full-disk-cycles.js';
import { eventually } from '../eventually.js';
import { FakeTransport } from '../fakes/attached-transport.js';
import { MemoryCallLog } from '../fakes/memory-call-log.js';
import { startNatsServer } from '../fakes/nats-server.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-keys-'));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

async function bank(stateDir?: string): Promise<{ host: Host; transport: FakeTransport }> {
  const host = await createHost({}, stateDir === undefined ? {} : { stateDir });
  let paid = 0;
  const transport = new FakeTransport({
    tools: { pay: 'pays', hang: 'hangs' },
    call: (name) => (name === 'pay' ? { result: { content: [], paid: ++paid } } : undefined),
  });
  await host.attach('bank', transport as never);
  return { host, transport };
}

test.each([
  ['without a state folder', undefined],
  ['with a state folder', path.join(folder, 'state')],
])('B11 three calls with one key are executed once, %s', async (_name, stateDir) => {
  const { host, transport } = await bank(stateDir);
  try {
    const pay = (key: string, n = 1) => host.call('bank', 'pay', { n }, { idempotencyKey: key });
    const results = [...(await Promise.all([pay('a'), pay('a')])), await pay('a')];
    expect(results.map((result) => result.json())).toEqual(Array(3).fill({ content: [], paid: 1 }));
    expect(transport.calls).toEqual(['pay']);
    await expect(pay('a', 2)).rejects.toMatchObject({ code: 'key_conflict', details: { execution: 'not_executed' } });
    expect((await pay('b')).json()).toMatchObject({ paid: 2 });
    await expect(pay('')).rejects.toMatchObject({ code: 'invalid_request', details: { field: 'idempotencyKey' } });
  } finally {
    await host.close();
  }
});

test('B11 after a restart a key keeps its outcome, and a call that had begun is uncertain', async () => {
  const stateDir = path.join(folder, 'restart');
  const before = await bank(stateDir);
  const first = await before.host.call('bank', 'pay', {}, { idempotencyKey: 'a' });
  const hangs = before.host.call('bank', 'hang', {}, { idempotencyKey: 'h' }).catch((error: unknown) => error);
  await eventually('the call is sent', () => before.transport.calls.length === 2);
  await before.host.close();
  expect(await hangs).toMatchObject({ details: { execution: 'uncertain' } });
  expect(statSync(path.join(stateDir, 'calls')).mode & 0o777).toBe(0o700);

  const { host, transport } = await bank(stateDir);
  try {
    const again = await host.call('bank', 'pay', {}, { idempotencyKey: 'a' });
    expect(again.json()).toEqual(first.json());
    const error = await host.call('bank', 'hang', {}, { idempotencyKey: 'h' }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ details: { execution: 'uncertain' } });
    expect(transport.calls).toEqual([]);
  } finally {
    await host.close();
  }
});

const pay = (host: Host, key: string) =>
  host.call('bank', 'pay', {}, { idempotencyKey: key }).then(
    (result) => result.json(),
    (error) => error.details.execution,
  );

test('B11 a key is executed once with and without a broker in the process, and over restarts', async () => {
  const [stateDir, dataDir] = [path.join(folder, 'brokered'), path.join(folder, 'data')];
  const serve = (host: Host) => createBroker({ host, dataDir, config: { broker: { listen: { port: 0 } } } });
  const before = await bank(stateDir);
  await pay(before.host, 'a');
  const served = await serve(before.host);
  for (const key of ['a', 'b', 'b']) await pay(before.host, key);
  await served.close();
  for (const key of ['a', 'b']) await pay(before.host, key);
  await before.host.close();
  expect(before.transport.calls).toEqual(['pay', 'pay']);

  const { host, transport } = await bank(stateDir);
  const again = await serve(host);
  expect([await pay(host, 'a'), await pay(host, 'b')]).toMatchObject([{ paid: 1 }, { paid: 2 }]);
  await again.close();
  await host.close();
  expect(transport.calls).toEqual([]);
});

test('B11 hosts on NATS share their keys, and a key of an earlier log is not run again there', async () => {
  await using nats = await startNatsServer();
  const broker = { url: nats.url, durability: 'process' as const };
  const serve = (host: Host) => createBroker({ host, dataDir: path.join(folder, 'none'), config: { broker } });
  const [one, two] = [await bank(path.join(folder, 'one')), await bank(path.join(folder, 'two'))];
  await pay(one.host, 'a');
  const served = [await serve(one.host), await serve(two.host)];
  for (const key of ['a', 'b']) await pay(one.host, key);
  expect(await pay(two.host, 'b')).toMatchObject({ paid: 2 });
  expect([one.transport.calls, two.transport.calls]).toEqual([['pay', 'pay'], []]);
  await served[0]?.close();
  expect([await pay(one.host, 'a'), await pay(one.host, 'b')]).toEqual([{ content: [], paid: 1 }, 'uncertain']);
  served.push(await serve(one.host));
  expect(await pay(one.host, 'b')).toMatchObject({ paid: 2 });
  for (const each of served) await each.close();
  await Promise.all([one.host.close(), two.host.close()]);
  expect(one.transport.calls).toHaveLength(2);
});

test('B11 with a shared log the own log is not needed, unless its file exists: then it may have the key', async () => {
  const stateDir = path.join(folder, 'unusable');
  // Other users may write to it, so it is not opened.
  mkdirSync(path.join(stateDir, 'calls'), { recursive: true });
  chmodSync(path.join(stateDir, 'calls'), 0o777);
  const { host, transport } = await bank(stateDir);
  const shared = keyedCalls(new MemoryCallLog(systemClock), systemClock, true, () => {});
  host.useKeyedCalls(shared, 'shared');
  expect(await pay(host, 'a')).toMatchObject({ paid: 1 });
  writeFileSync(path.join(stateDir, 'calls', 'calls.db'), '');
  await expect(host.call('bank', 'pay', {}, { idempotencyKey: 'b' })).rejects.toMatchObject({ code: 'invalid_spec' });
  expect(transport.calls).toEqual(['pay']);
  await host.close();
});

test.each(['own', 'shared'])(
  'B11 if the own log cannot be opened on a full disk, the call of a known key is uncertain (with the %s log)',
  async (scope) => {
    await withSmallDisk(8, async (stateDir) => {
      const before = await bank(stateDir);
      await pay(before.host, 'a');
      await before.host.close();
      // As the last process leaves them when its disk fails: the next one copies the write-ahead log, for which there is no room.
      const file = (name: string) => path.join(stateDir, 'calls', name);
      renameSync(file('calls.db'), file('calls.db-failed'));
      writeFileSync(file('calls.db-wal'), Buffer.alloc(64 * 1024));
      const others = path.join(stateDir, 'others');
      expect(() => writeFileSync(others, Buffer.alloc(9 * 1024 * 1024))).toThrow('ENOSPC');

      const { host, transport } = await bank(stateDir);
      const shared = keyedCalls(new MemoryCallLog(systemClock), systemClock, true, () => {});
      if (scope === 'shared') host.useKeyedCalls(shared, 'shared');
      const error = await host.call('bank', 'pay', {}, { idempotencyKey: 'a' }).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({
        code: 'insufficient_storage',
        message: expect.stringMatching(/; an earlier call with this key may have run$/),
        hint: expect.stringMatching(/; then make the call again with the same key$/),
        details: { execution: 'uncertain' },
      });
      rmSync(others);
      // A log that failed is not opened again in the same process.
      expect(await pay(host, 'a')).toBe('uncertain');
      expect(transport.calls).toEqual([]);
      await host.close();
    });
  },
);

test('B11 a call is uncertain if its log has failed and does not say whether it has the key', async () => {
  const { host, transport } = await bank();
  const failed = new HostError('insufficient_storage', 'the log failed', { execution: 'not_executed' });
  const none = { run: () => Promise.reject(new Error('unused')), close: async () => {} };
  host.useKeyedCalls({ ...none, knows: () => Promise.reject(failed) }, 'own');
  host.useKeyedCalls({ ...none, knows: async () => false }, 'shared');
  expect(await pay(host, 'a')).toBe('uncertain');
  expect(transport.calls).toEqual([]);
  await host.close();
});

test('the own log is closed even if closing the shared log fails', async () => {
  const stateDir = path.join(folder, 'closing');
  const { host } = await bank(stateDir);
  await pay(host, 'a');
  const run = () => Promise.reject(new Error('unused'));
  host.useKeyedCalls({ run, knows: async () => false, close: () => Promise.reject(new Error('no nats')) }, 'shared');
  await host.close();
  const again = await bank(stateDir);
  expect(await pay(again.host, 'a')).toMatchObject({ paid: 1 });
  expect(again.transport.calls).toEqual([]);
  await again.host.close();
});

test.each([false, true])(
  'B11 a call with a key after the close is refused and opens no log (a log was used before: %s)',
  async (wasUsed) => {
    const stateDir = path.join(folder, `closed-${wasUsed}`);
    const { host, transport } = await bank(stateDir);
    if (wasUsed) await pay(host, 'a');
    await host.close();
    const late = host.call('bank', 'pay', {}, { idempotencyKey: 'late' });
    await expect(late).rejects.toMatchObject({ code: 'server_stopped', details: { execution: 'uncertain' } });
    expect([existsSync(path.join(stateDir, 'calls')), transport.calls.length]).toEqual([wasUsed, wasUsed ? 1 : 0]);
  },
);
