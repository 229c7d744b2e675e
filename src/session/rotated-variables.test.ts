import { expect, test } from 'vitest';
import type { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { watchRotation } from './rotated-variables.js';

function setup() {
  const clock = new FakeClock();
  const session = { isAtWork: false, closedBy: undefined as HostError | undefined };
  const state = { value: 'one' as string | undefined, restarts: 0, looks: 0 };
  const resolve = () => {
    state.looks++;
    return state.value === undefined ? Promise.reject(new Error('gone')) : Promise.resolve(state.value);
  };
  const restart = () => void state.restarts++;
  watchRotation({ clock, secrets: { resolve }, session, written: { A: 'ref' }, started: { A: 'one' }, restart });
  const advance = async (ms: number) => {
    clock.advance(ms);
    await new Promise<void>((done) => setImmediate(done));
  };
  return { clock, session, state, advance };
}

test('AC-K4 a server restarts once after its secret was rotated, as soon as it works on no call', async () => {
  const { session, state, advance, clock } = setup();
  await advance(5_000);
  expect(state).toEqual({ value: 'one', restarts: 0, looks: 1 });
  state.value = 'two';
  session.isAtWork = true;
  for (let ms = 0; ms < 10_000; ms += 100) await advance(100);
  expect(state.restarts).toBe(0);
  session.isAtWork = false;
  await advance(100);
  expect([state.restarts, clock.pendingTimers]).toEqual([1, 0]);
});

test('a secret that cannot be read, and a session that has ended, cause no restart', async () => {
  const { session, state, advance, clock } = setup();
  state.value = undefined;
  await advance(5_000);
  state.value = 'two';
  session.closedBy = new Error('ended') as HostError;
  await advance(5_000);
  expect([state.restarts, state.looks, clock.pendingTimers]).toEqual([0, 1, 0]);
});

test('a secret whose rotation is found after the session has ended causes nothing', async () => {
  const { session, state, advance, clock } = setup();
  state.value = 'two';
  clock.advance(5_000);
  session.closedBy = new Error('stopped') as HostError;
  await advance(60_000);
  expect([state.restarts, state.looks, clock.pendingTimers]).toEqual([0, 1, 0]);
});
