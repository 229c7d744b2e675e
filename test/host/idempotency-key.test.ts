/** Calls with an idempotency key over a real host and a real log, also over a restart. */
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { createHost } from '../../src/broker/create-host.js';
import type { Host } from '../../src/host/host.js';
import { eventually } from '../eventually.js';
import { FakeTransport } from '../fakes/attached-transport.js';

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
])('B11 three calls with one key are one execution, %s', async (_name, stateDir) => {
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

test('B11 over a restart a key keeps its outcome, and a call that was begun is uncertain', async () => {
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
