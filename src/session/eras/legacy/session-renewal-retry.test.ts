import { describe, expect, test } from 'vitest';
import { notRenewed, rpcError, renewalSetup as setup } from '../../../../test/fakes/session-renewal.js';
import { HostError } from '../../../kernel/errors.js';

const overloaded = (retryAfterMs: number) => new HostError('overloaded', 'later', { httpStatus: 503, retryAfterMs });

describe('a session that could not be renewed', () => {
  /** The renewal is asked for by one request, and fails. */
  async function failed(error: unknown = rpcError()) {
    const parts = setup();
    const first = parts.within();
    parts.opens[0]?.reject(error);
    await first;
    return parts;
  }

  test('is tried again without a request, after 1 s, doubling to 30 s, until one is open', async () => {
    const { clock, log, opens, renewal, within } = setup();
    void within();
    for (const pauseMs of [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]) {
      const attempts = opens.length;
      opens.at(-1)?.reject(rpcError());
      await clock.advanceAsync(pauseMs - 1);
      expect(opens).toHaveLength(attempts);
      await clock.advanceAsync(1);
      expect(opens).toHaveLength(attempts + 1);
    }
    expect(log.filter((entry) => entry === 'lost')).toHaveLength(7);
    opens.at(-1)?.resolve();
    await clock.advanceAsync(60_000);
    expect([opens.length, renewal.isOpen, renewal.count, clock.pendingTimers]).toEqual([8, true, 1, 0]);
    // The next failure is the first of a new row.
    void within();
    opens.at(-1)?.reject(rpcError());
    await clock.advanceAsync(1_000);
    expect(opens).toHaveLength(10);
  });

  test('is tried again 1 s after the attempt has failed, not after it began', async () => {
    const { clock, log, opens, within } = setup();
    void within();
    await clock.advanceAsync(100);
    opens[0]?.reject(rpcError());
    await clock.advanceAsync(5_000);
    expect(log).toEqual([
      'held back',
      'initialize at 0',
      'lost',
      'failed session_not_renewed',
      'held back',
      'initialize at 1100',
    ]);
  });

  test('is opened in the same tick for a request that comes when the second is over', async () => {
    const { clock, log, opens, within } = setup();
    void within();
    await clock.advanceAsync(100);
    opens[0]?.reject(rpcError());
    await clock.advanceAsync(900);
    void within();
    expect(log.at(-1)).toBe('initialize at 1000');
    // The attempt of the request takes the place of the planned one.
    opens[1]?.resolve();
    await clock.advanceAsync(0);
    expect(clock.pendingTimers).toBe(0);
    await clock.advanceAsync(60_000);
    expect(opens).toHaveLength(2);
  });

  test('is left alone for as long as the server asked, then tried once without a request', async () => {
    const { clock, log } = await failed(overloaded(12_000));
    await clock.advanceAsync(11_999);
    expect(log).toEqual(['held back', 'initialize at 0', 'lost', 'failed undefined']);
    await clock.advanceAsync(1);
    expect(log.slice(4)).toEqual(['held back', 'initialize at 12000']);
  });

  test('is tried again once, however many requests are refused during the pause', async () => {
    const { clock, log, within } = await failed(overloaded(12_000));
    await Promise.all([within(), within(), within()]);
    expect(clock.pendingTimers).toBe(1);
    await clock.advanceAsync(12_000);
    expect(log.filter((entry) => entry.startsWith('initialize'))).toEqual(['initialize at 0', 'initialize at 12000']);
  });

  test('is left alone for its pause even if the previous session still answers a request', async () => {
    const { clock, log, renewal, within } = await failed(overloaded(12_000));
    renewal.answered(0);
    const refused = within();
    await clock.advanceAsync(11_999);
    expect(log.filter((entry) => entry.startsWith('initialize'))).toEqual(['initialize at 0']);
    expect(await refused).toEqual(['overloaded', undefined, 'not_executed', 12_000]);
  });

  test.each([
    ['an error of the server', new HostError('protocol_error', 'no', { rpcCode: -32603, retryAfterMs: 7_000 })],
    ['something else that was thrown', Object.assign(new Error('a mistake'), { code: 'overloaded' })],
  ])(
    'is tried again after 1 s if the pause is named by %s, not by a server that is overloaded',
    async (_name, error) => {
      const { clock, log } = await failed(error);
      await clock.advanceAsync(1_000);
      expect(log.at(-1)).toBe('initialize at 1000');
    },
  );

  test('keeps a request of an older session waiting until a new one is open', async () => {
    const { clock, opens, renewal, within } = setup();
    const first = within();
    opens[0]?.resolve();
    await first;
    void within();
    await clock.advanceAsync(1_000);
    opens[1]?.reject(rpcError());
    await clock.advanceAsync(0);
    const told: string[] = [];
    void renewal.renew(0).then(() => told.push('renewed'));
    await clock.advanceAsync(1_000);
    expect([told, opens.length]).toEqual([[], 3]);
    opens[2]?.resolve();
    await clock.advanceAsync(0);
    expect(told).toEqual(['renewed']);
  });

  test.each([
    ['no common version', new HostError('protocol_error', 'no', { reason: 'no_common_version' }), true],
    ['an unknown method', new HostError('protocol_error', 'no', { rpcCode: -32601 }), true],
    ['an unsupported version', new HostError('protocol_error', 'no', { rpcCode: -32022 }), true],
    ['an internal error', rpcError(), false],
    ['a timeout', new HostError('timeout', 'late', { execution: 'uncertain' }), false],
    ['a pause', overloaded(2_000), false],
    ['a mistake', new Error('a mistake'), false],
  ])('because of %s ends the connection only if the server no longer accepts the era', async (_name, error, isOver) => {
    const { log } = await failed(error);
    expect(log.includes('over')).toBe(isOver);
  });

  test('is not tried again after it was closed', async () => {
    const { clock, opens, renewal } = await failed();
    expect(clock.pendingTimers).toBe(1);
    renewal.close();
    expect(clock.pendingTimers).toBe(0);
    await clock.advanceAsync(60_000);
    expect(opens).toHaveLength(1);
  });

  test('is not tried again, nor reported as lost, if it was closed during the attempt', async () => {
    const { clock, log, opens, renewal, within } = setup();
    const request = within();
    renewal.close();
    opens[0]?.reject(rpcError());
    expect(await request).toEqual(notRenewed);
    expect([log, clock.pendingTimers]).toEqual([['held back', 'initialize at 0', 'failed session_not_renewed'], 0]);
  });

  test('is not tried again, nor reported as lost, if the whole connection ended during the attempt', async () => {
    const { clock, log, opens, state, within } = setup();
    const request = within();
    state.closedBy = new HostError('transport', 'gone', { reason: 'stalled', execution: 'not_executed' });
    opens[0]?.reject(rpcError());
    await request;
    expect([log, clock.pendingTimers]).toEqual([['held back', 'initialize at 0', 'failed stalled'], 0]);
  });

  test('is not tried again if the whole connection has ended since', async () => {
    const { clock, log, state } = await failed();
    state.closedBy = new HostError('transport', 'gone', { reason: 'stalled', execution: 'not_executed' });
    await clock.advanceAsync(60_000);
    expect([log.filter((entry) => entry.startsWith('initialize')), clock.pendingTimers]).toEqual([
      ['initialize at 0'],
      0,
    ]);
  });

  test('tells its requests which server it was, and what to look at', async () => {
    const { opens, renewal } = setup();
    const told = renewal.renew(0).catch((error: unknown) => error);
    opens[0]?.reject(rpcError());
    expect(await told).toMatchObject({
      message: "server 'a' lost its session, and a new one could not be opened",
      hint: 'try again shortly; if it lasts, look at how the server answers initialize',
    });
  });
});
