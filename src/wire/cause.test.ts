import { expect, test } from 'vitest';
import { RecentClients, recentEndMs } from './attribution.js';

test('E3 a client is alone if no request of another client ended in the last 30 s', () => {
  const recent = new RecentClients();
  expect([recent.hasOther('ann', 0), recent.hasAny(0), recentEndMs]).toEqual([false, false, 30_000]);
  recent.ended('ann', 1_000);
  expect([recent.hasOther('ann', 1_000), recent.hasOther('bob', 1_000)]).toEqual([false, true]);
  expect([recent.hasOther('bob', 30_999), recent.hasOther('bob', 31_000)]).toEqual([true, false]);
  expect([recent.hasAny(30_999), recent.hasAny(31_000)]).toEqual([true, false]);
});

test('E3 two points in time give the same decision as a table of all clients', () => {
  const recent = new RecentClients();
  const ends = new Map<string, number>();
  const clients = ['ann', 'bob', 'cid', 'dan'];
  let seed = 7;
  const next = (max: number) => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % max;
  };
  let nowMs = 0;
  for (let i = 0; i < 500; i++) {
    nowMs += next(20_000);
    const client = clients[next(clients.length)] as string;
    recent.ended(client, nowMs);
    ends.set(client, nowMs);
    nowMs += next(20_000);
    const isOtherRecent = (one: string) =>
      [...ends].some(([other, atMs]) => other !== one && nowMs - atMs < recentEndMs);
    expect(clients.map((one) => recent.hasOther(one, nowMs))).toEqual(clients.map(isOtherRecent));
  }
});

test('E3 requests made for no client count as those of one client', () => {
  const recent = new RecentClients();
  recent.ended(undefined, 0);
  expect([recent.hasOther(undefined, 1), recent.hasOther('ann', 1)]).toEqual([false, true]);
});
