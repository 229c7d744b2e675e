import { describe, expect, test } from 'vitest';
import { HostError } from '../../kernel/errors.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import type { HostLink } from '../ports.js';
import { type Served, supervise } from './service-supervisor.js';

/** Links that a test ends; every opening is written down with its time. */
function setUp(options: { backoff?: { minMs: number; maxMs: number } } = {}, refusal?: HostError) {
  const clock = new FakeClock();
  const opened: number[] = [];
  const waits: number[] = [];
  const links: { end: (error?: HostError) => void; isClosed: boolean }[] = [];
  const service: Served = {
    deliver: () => {},
    cancelled: () => {},
    attach: () => {},
    detach: (_, retryInMs) => waits.push(retryInMs),
  };
  const supervision = supervise({
    clock,
    service,
    random: () => 1,
    ...options,
    open: async (): Promise<HostLink> => {
      opened.push(clock.nowMs());
      if (refusal) throw refusal;
      let end: (error?: HostError) => void = () => {};
      const closed = new Promise<HostError | undefined>((resolve) => {
        end = resolve;
      });
      const link = { end, isClosed: false };
      links.push(link);
      return {
        closed,
        tell: () => {},
        tellAll: () => {},
        close: async () => {
          link.isClosed = true;
          end();
        },
      };
    },
  });
  return { clock, opened, waits, links, supervision };
}

const gone = new HostError('transport', 'the connection was cut');

describe('keeping a link', () => {
  test('AC-P7 three links that end at once are followed by a fourth, and stopping ends it', async () => {
    const { clock, opened, links, supervision } = setUp({ backoff: { minMs: 2, maxMs: 8 } });
    for (let i = 0; i < 3; i++) {
      await clock.advanceAsync(0);
      links.at(-1)?.end();
      await clock.advanceAsync(8);
    }
    expect(opened).toHaveLength(4);
    const stopped = supervision.stop();
    await stopped;
    expect(links.at(-1)?.isClosed).toBe(true);
    await clock.advanceAsync(60_000);
    expect(opened).toHaveLength(4);
  });

  test('the wait doubles from 0.5 s to 30 s, and a normal end is a reason to come back too', async () => {
    const { clock, waits, links } = setUp();
    for (let i = 0; i < 8; i++) {
      await clock.advanceAsync(0);
      links.at(-1)?.end(i % 2 ? gone : undefined);
      await clock.advanceAsync(0);
      await clock.advanceAsync(waits.at(-1) ?? 0);
    }
    expect(waits).toEqual([500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
  });

  test('D-52 healthy is who was subscribed for 10 s: then the wait begins anew', async () => {
    const { clock, waits, links } = setUp();
    await clock.advanceAsync(0);
    links.at(-1)?.end(gone);
    await clock.advanceAsync(500);
    links.at(-1)?.end(gone);
    await clock.advanceAsync(1_000);
    await clock.advanceAsync(10_000);
    links.at(-1)?.end(gone);
    await clock.advanceAsync(0);
    expect(waits).toEqual([500, 1_000, 500]);
  });

  test('D-52 a connection that hangs and then fails is not healthy', async () => {
    const clock = new FakeClock();
    const waits: number[] = [];
    const open = () =>
      new Promise<HostLink>((_, reject) => {
        clock.at(clock.nowMs() + 12_000, () => reject(gone));
      });
    const service = {
      deliver: () => {},
      cancelled: () => {},
      attach: () => {},
      detach: (_: unknown, ms: number) => waits.push(ms),
    };
    const { stop } = supervise({ clock, random: () => 1, open, service });
    await clock.advanceAsync(12_000 + 500 + 12_000 + 1_000 + 12_000);
    expect(waits).toEqual([500, 1_000, 2_000]);
    const stopped = stop();
    await clock.advanceAsync(12_000);
    await stopped;
  });

  test('D-52 who is refused waits minutes, and draws its wait by chance', async () => {
    const { clock, waits, opened } = setUp({}, new HostError('unauthenticated', 'no such key'));
    await clock.advanceAsync(500);
    await clock.advanceAsync(60_000);
    expect([waits, opened.length]).toEqual([[300_000], 1]);
    const half = supervise({
      clock,
      random: () => 0,
      open: async () => {
        throw gone;
      },
      service: { deliver: () => {}, cancelled: () => {}, attach: () => {}, detach: (_, ms) => waits.push(ms) },
    });
    await clock.advanceAsync(0);
    expect(waits.at(-1)).toBe(250);
    await half.stop();
  });

  test('told to stop while it waits, it opens nothing more', async () => {
    const { clock, links, opened, supervision } = setUp();
    await clock.advanceAsync(0);
    links.at(-1)?.end(gone);
    await clock.advanceAsync(100);
    await supervision.stop();
    await clock.advanceAsync(60_000);
    expect(opened).toHaveLength(1);
  });
});
