/** A host dies over a call of a worker, and its store cannot be read by the next one. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { eventually } from '../../eventually.js';
import { BrokerPlace, newKey } from './broker-place.js';

const place = new BrokerPlace();
const key = newKey();
afterAll(() => place.remove());

place.write('sleepy.ledger', '');
const begun = () => readFileSync(place.sleepyLedger, 'utf8').match(/^start \S+/gm) ?? [];

test('D-40 a call whose journal is lost is not run again; its worker hears that, and the operator why', {
  timeout: 90_000,
}, async () => {
  const { up: first, tools } = await place.upSleepy(key);
  const call = (nonce: string, sleepMs: number) =>
    tools.execute('sleepy', 'work', { nonce, sleepMs }, { deadlineMs: 60_000 }).then(
      () => 'done',
      ({ code, details }) => `${code} ${details.execution}`,
    );
  const lost = call('lost', 50_000);
  await eventually('it is under way', () => begun().length === 1);
  first.child.kill('SIGKILL');
  await first.closed;
  writeFileSync(path.join(place.dataDir, 'broker', 'broker.db'), 'not a database at all');
  const second = place.up();
  await second.ready();
  expect(await lost).toBe('outcome_uncertain uncertain');
  expect(await call('new', 0)).toBe('done');
  expect(begun()).toEqual(['start lost', 'start new']);
  expect(second.stderr).toMatch(
    / error broker: the store in broker\.db could not be read and was set aside; .*uncertain/,
  );
  expect(readdirSync(path.join(place.dataDir, 'broker'))).toContain('broker.db.unusable');
});
