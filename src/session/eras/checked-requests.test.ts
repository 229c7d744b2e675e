import { expect, test } from 'vitest';
import { HostError } from '../../kernel/errors.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import type { Peer } from '../../wire/peer.js';
import type { RequestOptions } from '../../wire/peer-interface.js';
import { pingVerdict, RefusalCheck } from './checked-requests.js';

const refused = (httpStatus: number) => new HostError('protocol_error', 'no', { httpStatus });

function setup() {
  const clock = new FakeClock();
  const asked: number[] = [];
  const state: { outcome: unknown } = { outcome: undefined };
  const request = async (_method: string, _params: undefined, { deadlineAtMs }: RequestOptions) => {
    asked.push(deadlineAtMs);
    if (state.outcome !== undefined) throw state.outcome;
  };
  const check = new RefusalCheck(clock, pingVerdict({ request } as unknown as Peer));
  return { clock, asked, state, check };
}

test.each([
  ['answered', false, undefined],
  ['refused with 400', true, refused(400)],
  ['refused with 404', true, refused(404)],
  ['refused with 410', true, refused(410)],
  ['refused with 401', false, refused(401)],
  ['refused with 503', false, refused(503)],
  ['not answered', false, new HostError('timeout', 'late')],
  ['not sent', false, new HostError('connect_failed', 'no')],
])('W3 whether a ping that is %s means that the session is gone: %s', async (_name, isGone, outcome) => {
  const { state, check } = setup();
  state.outcome = outcome;
  expect(await check.isRefused(0)).toBe(isGone);
});

test('W3 a session is checked once in 10 s, a new session at once', async () => {
  const { clock, asked, state, check } = setup();
  expect(await Promise.all([check.isRefused(0), check.isRefused(0)])).toEqual([false, false]);
  state.outcome = refused(404);
  clock.advance(9_999);
  expect(await check.isRefused(0)).toBe(false);
  clock.advance(1);
  expect(await check.isRefused(0)).toBe(true);
  expect(await check.isRefused(1)).toBe(true);
  // Each ping has 5 s.
  expect(asked).toEqual([5_000, 15_000, 15_000]);
});

test.each([
  ['was cut off', new HostError('transport', 'reset')],
  ['got a 503', refused(503)],
])('W3 a check that %s has no result: the next one may follow after a second', async (_name, outcome) => {
  const { clock, asked, state, check } = setup();
  state.outcome = outcome;
  expect(await check.isRefused(0)).toBe(false);
  state.outcome = refused(404);
  clock.advance(999);
  expect(await check.isRefused(0)).toBe(false);
  clock.advance(1);
  expect(await check.isRefused(0)).toBe(true);
  expect(asked).toHaveLength(2);
});
