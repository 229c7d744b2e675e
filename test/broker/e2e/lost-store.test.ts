/**
 * A host is killed in the middle of a call, and another store answers at its address. The tool runs once, and the caller is told that the
 * outcome is not known.
 */
import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'libsql';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { RemoteTools } from '../../../src/broker/worker/index.js';
import { eventually } from '../../eventually.js';
import { BrokerPlace, newKey } from './broker-place.js';

let place: BrokerPlace;
beforeEach(() => {
  place = new BrokerPlace();
  place.write('sleepy.ledger', '');
});
afterEach(() => place.remove());

const begun = () => readFileSync(place.sleepyLedger, 'utf8').match(/^start \S+/gm) ?? [];
const call = (tools: RemoteTools, nonce: string, sleepMs = 0) =>
  tools.execute('sleepy', 'work', { nonce, sleepMs }, { deadlineMs: 60_000 }).then(
    () => 'done',
    ({ code, details }) => `${code} ${details.execution}`,
  );
const folder = () => path.join(place.dataDir, 'broker');
const copy = () => path.join(place.folder, 'copy');

/** `before`: what happens to the store before the call. `after`: what happens to it between the two starts. */
const stores: [name: string, before: () => void, after: () => void][] = [
  ['an empty data directory', () => {}, () => rmSync(folder(), { recursive: true })],
  ['an older copy', () => cpSync(folder(), copy(), { recursive: true }), () => restore()],
  ['a file that is no database', () => {}, () => damage()],
];

/** Calls in a copy that are received and not begun. */
function received(where: string): number {
  const database = new Database(path.join(where, 'calls.db'));
  try {
    const { rows } = database.prepare('SELECT count(*) AS rows FROM calls WHERE state = 0').get() as { rows: number };
    return rows;
  } finally {
    database.close();
  }
}

function restore(): void {
  rmSync(folder(), { recursive: true });
  cpSync(copy(), folder(), { recursive: true });
}

function damage(): void {
  for (const name of readdirSync(folder())) rmSync(path.join(folder(), name), { recursive: true });
  writeFileSync(path.join(folder(), 'calls.db'), 'not a database at all');
}

test.each(stores)(
  'D-40 the store is replaced by %s: a call that has begun does not run twice',
  {
    timeout: 90_000,
  },
  async (_, before, after) => {
    const key = newKey();
    const { up: first, tools } = await place.upSleepy(key);
    expect(await call(tools, 'earlier')).toBe('done');
    before();
    const lost = call(tools, 'lost', 50_000);
    await eventually('it runs', () => begun().length === 2);
    first.child.kill('SIGKILL');
    await first.closed;
    after();
    const second = place.up();
    await second.ready();
    expect(await lost).toBe('outcome_uncertain uncertain');
    expect(await call(tools, 'new')).toBe('done');
    expect(begun()).toEqual(['start earlier', 'start lost', 'start new']);
  },
);

test('D-40 a standby with its own data directory answers: a call that has begun does not run twice', {
  timeout: 90_000,
}, async () => {
  const key = newKey();
  const { up: first, tools } = await place.upSleepy(key);
  const lost = call(tools, 'lost', 50_000);
  await eventually('it runs', () => begun().length === 1);
  first.child.kill('SIGKILL');
  await first.closed;
  const standby = place.up('--data-dir', path.join(place.folder, 'standby'));
  await standby.ready();
  expect(await lost).toBe('outcome_uncertain uncertain');
  expect(begun()).toEqual(['start lost']);
});

test('D-40 a copy that was made while a call waited is restored after the call has begun: the call does not run twice', {
  timeout: 90_000,
}, async () => {
  const key = newKey();
  const { up: first, tools } = await place.upSleepy(key, { callsPerWorker: 1 });
  const running = call(tools, 'running', 1_500);
  await eventually('it runs', () => begun().length === 1);
  const waiting = call(tools, 'waiting', 50_000);
  await eventually('a copy in which it waits', () => {
    rmSync(copy(), { recursive: true, force: true });
    cpSync(folder(), copy(), { recursive: true });
    return received(copy()) === 1;
  });
  expect(await running).toBe('done');
  await eventually('it runs too', () => begun().length === 2);
  first.child.kill('SIGKILL');
  await first.closed;
  restore();
  await place.up().ready();
  expect(await waiting).toBe('outcome_uncertain uncertain');
  expect(begun()).toEqual(['start running', 'start waiting']);
});
