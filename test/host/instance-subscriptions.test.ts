/**
 * Subscriptions of clients with one process each, with real child processes.
 */
import { expect, test } from 'vitest';
import type { Host } from '../../src/host/host.js';
import { eventually } from '../eventually.js';
import { fakePrincipal } from '../fakes/policy-call.js';
import { ListedHost } from './listed-server.js';

const uri = 'r:1';

/** Each client and the notifications it received. */
async function open(era: 'legacy' | 'modern') {
  const listed = await ListedHost.open(era, { isolation: 'per-client' });
  const { host } = listed;
  const heard: string[] = [];
  const call = (client: string, tool: string, args: object) =>
    host.call('a', tool, args as Record<string, unknown>, { instance: client, principal: fakePrincipal(client) });
  const subscribe = (client: string) =>
    host.subscribe('a', uri, fakePrincipal(client), () => heard.push(client), client);
  const update = (client: string) =>
    call(client, 'say', { method: 'notifications/resources/updated', params: { uri } });
  return { listed, host, heard, call, subscribe, update };
}

test.each(['legacy', 'modern'] as const)(
  '%s: each client gets updates of its own process, and of no other',
  async (era) => {
    const { listed, host, heard, subscribe, update } = await open(era);
    const ends = [await subscribe('ann'), await subscribe('bob')];
    expect([listed.asked('start').length, host.status()[0]?.state]).toEqual([2, 'registered']);
    await update('ann');
    await eventually('ann heard of it', () => heard.length > 0);
    await update('bob');
    await eventually('bob heard of it', () => heard.length > 1);
    // Known lists belong to the shared server, which was never started.
    expect([heard, listed.asked('prompts/list'), listed.asked('start').length]).toEqual([['ann', 'bob'], [], 2]);
    ends[0]?.();
    await eventually(
      'the subscription was ended at the server',
      () => [...listed.asked('resources/unsubscribe'), ...listed.asked('unlisten')][0],
    );
    await update('ann');
    await update('bob');
    await eventually('bob heard of it', () => heard.length > 2);
    expect(heard).toEqual(['ann', 'bob', 'bob']);
    ends[1]?.();
    expect(listed.problems).toEqual([]);
  },
);

test('a subscription outlives the process, as long as its client is connected', async () => {
  const { listed, host, heard, call, subscribe, update } = await open('legacy');
  await subscribe('ann');
  await call('ann', 'exit', {}).catch(() => {});
  await eventually('it is subscribed again', () => listed.asked('resources/subscribe').length === 2);
  await update('ann');
  await eventually('ann heard of it', () => heard.length === 1);
  host.endInstance('ann');
  await eventually('nothing of it runs', () => host.status()[0]?.instances === 0);
});

test.each([
  ['reload', (host: Host) => host.reload('a')],
  ['stop and start', (host: Host) => host.stop('a').then(() => host.start('a'))],
])('E4 a subscription outlives %s of its server', async (_what, act) => {
  const { listed, host, heard, subscribe, update } = await open('legacy');
  await subscribe('ann');
  await act(host);
  await eventually('it is subscribed again', () => listed.asked('resources/subscribe').length === 2);
  await update('ann');
  await eventually('ann heard of it', () => heard.length === 1);
});
