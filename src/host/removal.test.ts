import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, onTestFinished, test } from 'vitest';
import { FakeTransport } from '../../test/fakes/attached-transport.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { createHost } from './host.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

test('AC-R7 the lists of a removed server are dropped from memory, and are known when the server is added again', async () => {
  const stateDir = mkdtempSync(path.join(os.tmpdir(), 'hostler-removal-'));
  onTestFinished(() => rmSync(stateDir, { recursive: true, force: true }));
  const host = await createHost({}, { clock: new FakeClock(), stateDir, onProblem: () => expect.unreachable() });
  const items = () => host.known('x')?.lists.get('tools/list')?.items ?? [];
  await host.attach('x', new FakeTransport());
  const listed = items().map(({ raw }) => new WeakRef(raw));
  const texts = items().map(({ raw }) => String(raw));
  expect(listed).toHaveLength(1);
  await host.detach('x');
  await new Promise((resolve) => setImmediate(resolve));
  collect();
  expect(listed.map((each) => each.deref()?.toString())).toEqual([undefined]);
  await host.attach('x', () => new FakeTransport(), { lazy: true });
  expect(items().map(({ raw }) => String(raw))).toEqual(texts);
  await host.close();
});
