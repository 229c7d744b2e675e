/** `hostler broker` as a process: what it says, and how much of it. */
import { afterEach, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { Workplace } from './hostler-process.js';

let place: Workplace;
afterEach(() => place.remove());

const changed = 'the keys of the edited configuration are in effect';
/** An entry that cannot be used is a warning, at the start and with each change. */
const config = (log: object, key: string) => ({
  keys: { [key]: { hash: 'none' } },
  broker: { listen: { port: 0 } },
  ...log,
});

test('it logs at the level of log.level, also after a change', { timeout: 60_000 }, async () => {
  place = new Workplace();
  place.configure(config({ log: { level: 'error' } }, 'first'));
  const broker = place.follow('broker', '--config', place.config, '--json');
  await broker.ready();
  await eventually('it is there', () => broker.stderr.includes('hosts and workers connect at'));
  expect(broker.stderr).not.toMatch(/ (warn|info|debug) /);
  place.configure('{');
  await eventually('what is an error is said', () =>
    broker.stderr.includes('is invalid; the previous one stays in effect'),
  );
  expect(broker.stderr).not.toMatch(/ (warn|info|debug) /);
  place.configure(config({ log: { level: 'warn' } }, 'second'));
  await eventually('a warning of the entry', () => broker.stderr.includes('keys.second'));
  expect(broker.stderr).not.toContain('keys.first');
  place.configure(config({}, 'third'));
  await eventually('information', () => broker.stderr.includes(changed));
  expect(broker.stderr.indexOf(changed)).toBeGreaterThan(broker.stderr.indexOf('keys.third'));
  broker.child.kill('SIGTERM');
  expect((await broker.closed).code).toBe(0);
});
