import { expect, test } from 'vitest';
import { fakePrincipal } from '../../test/fakes/policy-call.js';
import {
  type Subscriber,
  SubscriptionTable,
  subscribedCharsMax,
  subscribedUrisMax,
  subscriptionsPerPrincipalMax,
} from './subscription-table.js';

const subscriber = (uri: string, principal = 'ada', server = 'a'): Subscriber => ({
  server,
  place: server,
  uri,
  principal: fakePrincipal(principal),
  updated: () => {},
});
const refusal = (add: () => void) => {
  try {
    add();
    return undefined;
  } catch (error) {
    return (error as { details: { reason: string } }).details.reason;
  }
};

test('a resource is wanted for as long as somebody wants it', () => {
  const table = new SubscriptionTable();
  const [first, second, other] = [subscriber('r:1'), subscriber('r:1', 'bob'), subscriber('r:1', 'ada', 'b')];
  for (const each of [first, second, other]) table.add(each);
  expect([table.uris('a'), table.of('a', 'r:1')]).toEqual([['r:1'], [first, second]]);
  table.remove(first);
  table.remove(first);
  expect(table.has('a', 'r:1')).toBe(true);
  table.remove(second);
  expect([table.has('a', 'r:1'), table.has('b', 'r:1'), table.uris('a')]).toEqual([false, true, []]);
});

test('of a part of what was subscribed to, whoever wants the whole hears', () => {
  const table = new SubscriptionTable();
  const whole = subscriber('file:///a');
  table.add(whole);
  expect(table.of('a', 'file:///a/b')).toEqual([whole]);
  expect(table.of('a', 'file:///a#top')).toEqual([whole]);
  expect(table.of('a', 'file:///ab')).toEqual([]);
  const part = subscriber('file:///a/b');
  table.add(part);
  expect(table.of('a', 'file:///a/b')).toEqual([part]);
});

test('there are bounds for a principal, for a server, and for all addresses together', () => {
  const table = new SubscriptionTable();
  const mine = Array.from({ length: subscriptionsPerPrincipalMax }, (_, i) => subscriber(`r:${i}`));
  for (const each of mine) table.add(each);
  expect(refusal(() => table.add(subscriber('r:0')))).toBe('subscriptions_per_principal');
  table.remove(mine[0] as Subscriber);
  table.add(subscriber('r:0'));
  for (let i = subscriptionsPerPrincipalMax; i < subscribedUrisMax; i++) table.add(subscriber(`r:${i}`, `p${i}`));
  expect(refusal(() => table.add(subscriber('r:new', 'bob')))).toBe('subscriptions_per_server');
  // One that is there already takes no more room.
  table.add(subscriber('r:0', 'bob'));
  const long = new SubscriptionTable();
  long.add(subscriber('x'.repeat(subscribedCharsMax - 1)));
  expect(refusal(() => long.add(subscriber('yy')))).toBe('subscriptions_per_characters');
  expect([refusal(() => long.add(subscriber('y'))), long.uris('a').length]).toEqual([undefined, 2]);
});
