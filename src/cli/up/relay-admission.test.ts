import { expect, test } from 'vitest';
import type { Hello } from '../relay/hello.js';
import { RelayAdmission } from './relay-admission.js';
import { isReplaceable, usageOf } from './usage.js';

function setUp(env: NodeJS.ProcessEnv = {}) {
  const state = { isEnding: false, newer: [] as [string, boolean][] };
  const admission = new RelayAdmission({
    ...{ config: '/a/hostler.json', version: '0.1.0', pid: 7, env, options: { port: '1', auth: 'key' } },
    url: () => undefined,
    isEnding: () => state.isEnding,
    onVariablesAdded: () => {},
    onNewer: (version, isUrgent) => state.newer.push([version, isUrgent]),
  });
  const greet = (part: Partial<Hello> = {}) =>
    admission.welcome({
      hostler: 1,
      version: '0.1.0',
      client: 'c',
      config: '/a/hostler.json',
      env: {},
      options: {},
      ...part,
    });
  return { state, admission, greet };
}

test('R3 relays of any version join, and a newer one is noted; another protocol is refused, and a newer protocol ends the host', () => {
  const { state, greet } = setUp();
  expect([greet().refused, greet({ version: '0.0.9' }).refused, state.newer]).toEqual([undefined, undefined, []]);
  expect([greet({ version: '0.2.0' }).refused, state.newer]).toEqual([undefined, [['0.2.0', false]]]);
  expect([greet({ hostler: 0 }).refused, state.newer.length]).toEqual(['protocol', 1]);
  expect([greet({ hostler: 2, version: '1.0.0' }).refused, state.newer[1]]).toEqual(['protocol', ['1.0.0', true]]);
});

test('R3 a relay with another configuration is refused with the path of this one, and a host that ends refuses all relays', () => {
  const { state, greet } = setUp();
  expect(greet({ config: '/b/hostler.json' })).toMatchObject({ refused: 'config', config: '/a/hostler.json' });
  state.isEnding = true;
  expect(greet().refused).toBe('stopping');
});

test('R1 a client beyond the maximum is refused with the reason, and leaves nothing behind', () => {
  const env: NodeJS.ProcessEnv = {};
  const { admission, state, greet } = setUp(env);
  const hello = { hostler: 1, client: 'd', config: '/a/hostler.json', options: {} };
  const welcome = admission.welcome({ ...hello, version: '0.2.0', env: { PATH: '/x' } }, 512);
  expect([welcome.refused, welcome.notes]).toEqual(['full', [expect.stringMatching(/ 512 clients .*close one/)]]);
  expect([env, state.newer, greet().refused]).toEqual([{}, [], undefined]);
});

test('R3 a differing variable is not used, and is named while its client is connected; unnamed variables are ignored', () => {
  const env: NodeJS.ProcessEnv = { PATH: '/own' };
  const { admission, greet } = setUp(env);
  const { notes } = greet({ env: { PATH: '/secret/path', LD_PRELOAD: '/evil' }, options: { port: '2', auth: 'key' } });
  expect(notes.join()).toMatch(/^PATH: .*--port has no effect/);
  expect([env, JSON.stringify([notes, admission.notes()]).includes('/secret')]).toEqual([{ PATH: '/own' }, false]);
  expect(admission.notes().length).toBe(1);
  admission.ended('c');
  expect(admission.notes()).toEqual([]);
});

test('R4 relays, HTTP, workers, calls and leases keep a host running; a session or an instance of a client only delays an upgrade', () => {
  const row = { running: 0, queue: 0, leases: { bindings: 0, calls: 0 }, instances: 0, pid: 9 };
  const parts = (part: object = {}, http: object = {}, connectedWorkers = 0) =>
    ({
      host: { status: () => [{ ...row, ...part }] },
      gateway: { httpUsage: { open: 0, sessions: 0, answers: 5, ...http } },
      workers: { status: () => ({ connectedWorkers, calls: 2 }) },
    }) as unknown as Parameters<typeof usageOf>[0];
  expect(usageOf(parts(), 0)).toEqual({ open: 0, total: 7 });
  const uses = [parts({ running: 1 }), parts({ leases: { bindings: 1 } }), parts({}, { open: 1 }), parts({}, {}, 1)];
  for (const each of uses) expect([usageOf(each, 0).open, isReplaceable(each)]).toEqual([1, false]);
  expect(usageOf(parts(), 3).open).toBe(3);
  for (const each of [parts({ instances: 1 }), parts({}, { sessions: 1 })])
    expect([usageOf(each, 0).open, isReplaceable(each)]).toEqual([0, false]);
  expect(isReplaceable(parts())).toBe(true);
});
