import { expect, test } from 'vitest';
import { fakePrincipal } from '../../test/fakes/policy-call.js';
import {
  type Subscriber,
  SubscriptionTable,
  subscribedCharsMax,
  subscribedUrisMax,
  subscriptionsPerPrincipalMax,
} from './subscriptions.js';

const subscriber = (uri: string, principal = 'ada', server = 'a'): Subscriber => ({
  server,
  target: server,
  uri,
  principal: fakePrincipal(principal),
  updated: () => {},
  holdAgain: () => {},
});
const refusal = (add: () => void) => {
  try {
    add();
    return undefined;
  } catch (error) {
    return (error as { details: { reason: string } }).details.reason;
  }
};

test('a URI stays in the table until its last subscriber is removed', () => {
  const table = new SubscriptionTable();
  const [first, second, other] = [subscriber('r:1'), subscriber('r:1', 'bob'), subscriber('r:1', 'ada', 'b')];
  for (const each of [first, second, other]) table.add(each);
  expect([table.uris('a'), table.of('a', 'r:1')]).toEqual([['r:1'], [first, second]]);
  expect([table.remove(first), table.remove(first), table.uris('a')]).toEqual([false, false, ['r:1']]);
  expect([table.remove(second), table.uris('a'), table.uris('b')]).toEqual([true, [], ['r:1']]);
});

test('an update of a sub-resource reaches the subscribers of the whole resource', () => {
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

test('subscriptions are bounded per principal, per server, and by the length of all URIs', () => {
  const table = new SubscriptionTable();
  const mine = Array.from({ length: subscriptionsPerPrincipalMax }, (_, i) => subscriber(`r:${i}`));
  for (const each of mine) table.add(each);
  expect(refusal(() => table.add(subscriber('r:0')))).toBe('subscriptions_per_principal');
  table.remove(mine[0] as Subscriber);
  table.add(subscriber('r:0'));
  for (let i = subscriptionsPerPrincipalMax; i < subscribedUrisMax; i++) table.add(subscriber(`r:${i}`, `p${i}`));
  expect(refusal(() => table.add(subscriber('r:new', 'bob')))).toBe('subscriptions_per_server');
  // Another subscriber of a URI in the table needs no more room.
  table.add(subscriber('r:0', 'bob'));
  const long = new SubscriptionTable();
  long.add(subscriber('x'.repeat(subscribedCharsMax - 1)));
  expect(refusal(() => long.add(subscriber('yy')))).toBe('subscriptions_per_characters');
  expect([refusal(() => long.add(subscriber('y'))), long.uris('a').length]).toEqual([undefined, 2]);
});
