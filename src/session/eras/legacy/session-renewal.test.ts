import { getEventListeners } from 'node:events';
import { describe, expect, test } from 'vitest';
import { notRenewed, rpcError, renewalSetup as setup } from '../../../../test/fakes/session-renewal.js';
import { HostError } from '../../../kernel/errors.js';

describe('W1 a session that is renewed', () => {
  test('is renewed once for all requests that wait, and again only after it was lost again', async () => {
    const { log, opens, renewal, within, settle } = setup();
    const waiting = [within(), within(), within()];
    expect(renewal.isOpen).toBe(false);
    opens[0]?.resolve();
    expect(await Promise.all(waiting)).toEqual(['renewed', 'renewed', 'renewed']);
    expect([renewal.isOpen, renewal.count]).toEqual([true, 1]);
    // The request was sent in the previous session, and there is already a newer one.
    await renewal.renew(0);
    await settle();
    // Requests that wait in the channel are sent after the list of tools of the new session was requested.
    expect(log).toEqual(['held back', 'initialize at 0', 'renewed', 'opened']);
  });

  test.each([
    ['an error of the server', rpcError(), notRenewed],
    ['a timeout', new HostError('timeout', 'late', { execution: 'uncertain', phase: 'written' }), notRenewed],
    ['a broken connection', new HostError('transport', 'reset', { execution: 'uncertain' }), notRenewed],
    ['anything thrown', new Error('a mistake'), notRenewed],
    [
      'no connection',
      new HostError('connect_failed', 'no', { reason: 'ECONNREFUSED', execution: 'not_executed' }),
      ['connect_failed', 'ECONNREFUSED', 'not_executed', undefined],
    ],
    [
      'an overloaded server',
      new HostError('overloaded', 'later', { reason: 'http_status', execution: 'uncertain', retryAfterMs: 7_000 }),
      ['overloaded', 'http_status', 'not_executed', 7_000],
    ],
    [
      'a refused token',
      new HostError('needs_reauth', 'sign in', { execution: 'not_executed' }),
      ['needs_reauth', undefined, 'not_executed', undefined],
    ],
  ])(
    'whose renewal fails with %s releases the channel and fails every request with that reason',
    async (_name, error, told) => {
      const { log, opens, renewal, within } = setup();
      const waiting = [within(), within()];
      opens[0]?.reject(error);
      expect(await Promise.all(waiting)).toEqual([told, told]);
      expect([renewal.isOpen, log.filter((entry) => entry.startsWith('failed')).length]).toEqual([false, 1]);
      expect(log).not.toContain('renewed');
    },
  );

  test('sends one initialize a second, each when a request asks for it', async () => {
    const { clock, log, opens, renewal, within, settle } = setup();
    const first = within();
    await clock.advanceAsync(100);
    opens[0]?.reject(rpcError());
    expect(await first).toEqual(notRenewed);
    await clock.advanceAsync(100);
    const next = [within(), within()];
    await clock.advanceAsync(799);
    expect(log.filter((entry) => entry.startsWith('initialize'))).toEqual(['initialize at 0']);
    await clock.advanceAsync(1);
    expect(log.filter((entry) => entry.startsWith('initialize'))).toEqual(['initialize at 0', 'initialize at 1000']);
    opens[1]?.resolve();
    expect(await Promise.all(next)).toEqual(['renewed', 'renewed']);
    renewal.answered(renewal.count);
    // Lost again within the same second.
    void within();
    await settle();
    expect(opens).toHaveLength(2);
    await clock.advanceAsync(1_000);
    expect(log.at(-1)).toBe('initialize at 2000');
  });

  test('W26 backs off to 30 s while new sessions answer no request, and refuses requests meanwhile', async () => {
    const { clock, log, opens, renewal, within } = setup();
    const renewOnce = async () => {
      const waiting = within();
      await clock.advanceAsync(1_000);
      opens.at(-1)?.resolve();
      return waiting;
    };
    const refusals: unknown[] = [];
    for (let i = 0; i < 8; i++) {
      const refused = await renewOnce();
      if (refused === 'renewed') continue;
      refusals.push(refused);
      await clock.advanceAsync(Number(refused[3]) - 1_000);
      expect(await renewOnce()).toBe('renewed');
    }
    const atMs = log.filter((entry) => entry.startsWith('initialize')).map((entry) => Number(entry.split(' ').at(-1)));
    const gaps = atMs.slice(1).map((each, k) => each - (atMs[k] as number));
    expect(gaps).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
    for (const refused of refusals)
      expect(refused).toEqual(['transport', 'session_not_renewed', 'not_executed', expect.any(Number)]);
    // An answer in an older session proves nothing; one in the present session ends the backoff.
    renewal.answered(renewal.count - 1);
    expect(await within()).toContain('session_not_renewed');
    renewal.answered(renewal.count);
    const next = within();
    await clock.advanceAsync(1_000);
    opens.at(-1)?.resolve();
    expect(await next).toBe('renewed');
  });

  test.each([
    [12_000, 12_000],
    [300_000, 15_000],
  ])('W26 waits %d ms if the server asks for it, and 15 s at most', async (askedMs, waitMs) => {
    const { clock, log, opens, within } = setup();
    const first = within();
    opens[0]?.reject(new HostError('overloaded', 'later', { httpStatus: 503, retryAfterMs: askedMs }));
    expect(await first).toEqual(['overloaded', undefined, 'not_executed', waitMs]);
    await clock.advanceAsync(5_000);
    // Still a throttle, not a failure of the server: the breaker must not count it.
    expect(await within()).toEqual(['overloaded', undefined, 'not_executed', waitMs - 5_000]);
    await clock.advanceAsync(waitMs - 5_000);
    const next = within();
    await clock.advanceAsync(0);
    const openings = log.filter((entry) => entry.startsWith('initialize'));
    expect(openings).toEqual(['initialize at 0', `initialize at ${waitMs}`]);
    opens[1]?.resolve();
    expect(await next).toBe('renewed');
    // The following pauses are no longer those of the throttle.
    const later = within();
    await clock.advanceAsync(1_000);
    opens[2]?.resolve();
    expect(await later).toBe('renewed');
    expect(await within()).toEqual(['transport', 'session_not_renewed', 'not_executed', expect.any(Number)]);
  });

  test('tries again after 100 ms if no connection could be opened', async () => {
    const { clock, log, opens, within } = setup();
    const first = within();
    opens[0]?.reject(new HostError('connect_failed', 'no', { execution: 'not_executed' }));
    await first;
    void within();
    await clock.advanceAsync(99);
    expect(opens).toHaveLength(1);
    await clock.advanceAsync(1);
    expect(log.at(-1)).toBe('initialize at 100');
  });

  test('keeps no request after its deadline or cancellation, and continues for the others', async () => {
    const { clock, opens, within } = setup();
    const abort = new AbortController();
    const requests = [within(500), within(60_000, abort.signal), within()];
    abort.abort();
    await clock.advanceAsync(500);
    opens[0]?.resolve();
    expect(await Promise.all(requests)).toEqual([
      ['timeout', 'session_expired', 'not_executed', undefined],
      ['cancelled', 'session_expired', 'not_executed', undefined],
      'renewed',
    ]);
    expect(clock.pendingTimers).toBe(0);
  });

  test('reports a slow initialize, but not one that is answered in time', async () => {
    const { clock, log, opens, within } = setup();
    void within();
    await clock.advanceAsync(9_999);
    expect(log).not.toContain('slow');
    await clock.advanceAsync(1);
    expect(log).toContain('slow');
    opens[0]?.resolve();
    await clock.advanceAsync(60_000);
    expect(log.filter((entry) => entry === 'slow')).toHaveLength(1);
    void within();
    await clock.advanceAsync(100);
    opens[1]?.resolve();
    await clock.advanceAsync(60_000);
    expect(log.filter((entry) => entry === 'slow')).toHaveLength(1);
  });

  test('fails the waiting requests with the error of the connection if the connection is lost meanwhile', async () => {
    const { opens, state, within } = setup();
    const request = within();
    state.closedBy = new HostError('transport', 'gone', { reason: 'stalled', execution: 'not_executed' });
    opens[0]?.reject(new HostError('transport', 'gone', { reason: 'stalled', execution: 'uncertain' }));
    expect(await request).toEqual(['transport', 'stalled', 'not_executed', undefined]);
  });

  test('W24 is renewed again after a failed renewal, whichever session the request was sent in', async () => {
    const { clock, log, opens, renewal, within } = setup();
    const first = within();
    opens[0]?.resolve();
    await first;
    const second = within();
    await clock.advanceAsync(1_000);
    opens[1]?.reject(rpcError());
    expect(await second).toEqual(notRenewed);
    const third = renewal.renew(0);
    await clock.advanceAsync(1_000);
    opens[2]?.resolve();
    await third;
    expect([renewal.count, log.filter((entry) => entry.startsWith('initialize')).length]).toEqual([2, 3]);
  });

  test('W24 a request that was cancelled before it waits opens no session', async () => {
    const { log, within } = setup();
    expect(await within(60_000, AbortSignal.abort())).toEqual([
      'cancelled',
      'session_expired',
      'not_executed',
      undefined,
    ]);
    expect(log).toEqual([]);
  });

  test.each(['resolve', 'reject'] as const)('W24 no listener stays on the signal of a caller: %s', async (end) => {
    const { opens, within } = setup();
    const { signal } = new AbortController();
    const request = within(60_000, signal);
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    opens[0]?.[end](rpcError());
    await request;
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });

  test('is renewed again after a renewal in which the channel could not be reset', async () => {
    const { clock, opens, within, renewal, state } = setup();
    state.isBroken = true;
    expect(await within()).toEqual(notRenewed);
    expect(renewal.isOpen).toBe(false);
    state.isBroken = false;
    const next = within();
    await clock.advanceAsync(1_000);
    opens[0]?.resolve();
    expect([await next, renewal.isOpen]).toEqual(['renewed', true]);
  });

  test('W24 a session without a channel to release also fails its requests', async () => {
    const { opens, within } = setup({ hasChannel: false });
    const request = within();
    opens[0]?.reject(rpcError());
    expect(await request).toEqual(notRenewed);
  });
});

test.each([
  ['its deadline passed', 'timeout'],
  ['the caller cancelled it', 'cancelled'],
] as const)('a request that stops waiting for a session says that %s', async (why, code) => {
  const { clock, renewal } = setup();
  const abort = new AbortController();
  const request = { method: 'tools/call', deadlineAtMs: 500, signal: abort.signal };
  const told = renewal.within(request, 0).catch((error: unknown) => error);
  if (code === 'cancelled') abort.abort();
  await clock.advanceAsync(500);
  const message = `tools/call on server 'a': ${why} while its session was renewed`;
  expect(await told).toMatchObject({ code, message });
});

test('a session is unproven from its renewal until it answers a request', async () => {
  const { opens, renewal, within } = setup();
  expect(renewal.isUnproven).toBe(false);
  const first = within();
  expect(renewal.isUnproven).toBe(false);
  opens[0]?.resolve();
  await first;
  expect(renewal.isUnproven).toBe(true);
  renewal.answered(0);
  expect(renewal.isUnproven).toBe(true);
  renewal.answered(1);
  expect(renewal.isUnproven).toBe(false);
});
