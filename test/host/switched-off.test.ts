/** Servers that an operator stopped: removed from the lists at once, and still stopped in the next host. */
import { expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { failureOf } from './harness.js';
import { ListedHost } from './listed-server.js';

const tools = { tools: [{ name: 't' }] };

async function opened() {
  const listed = ListedHost.make();
  const config = { mcpServers: { a: listed.entry('a', 'legacy') } };
  listed.list('a', tools);
  const host = await listed.start(config, { learnAtBoot: true });
  await host.whenAllListed();
  expect(listed.keys('tools/list')).toEqual(['t']);
  return { listed, config, host };
}

test('a stopped server is in no list from the same tick on, and calls to it are refused', async () => {
  const { listed, host } = await opened();
  const before = host.known('a')?.revision;
  const stopping = host.stop('a');
  expect([listed.keys('tools/list'), host.known('a')?.revision === before]).toEqual([undefined, false]);
  await stopping;
  expect(await host.discover()).toMatchObject([{ server: 'a', error: { code: 'server_stopped' } }]);
  expect((await failureOf(host.call('a', 't', {}))).code).toBe('server_stopped');
  await host.reload('a');
  expect(listed.keys('tools/list')).toEqual(['t']);
});

test('a stopped server is stopped in the next host, and with an edited definition, until it is started', async () => {
  const { listed, config, host } = await opened();
  await host.stop('a');
  const next = await listed.start(config, { learnAtBoot: true });
  expect([next.status()[0]?.state, listed.keys('tools/list')]).toEqual(['stopped', undefined]);
  await next.reconfigure({ mcpServers: { a: { ...config.mcpServers.a, keepAlive: '1m' } } });
  expect(next.status()[0]?.state).toBe('stopped');
  await next.start('a');
  const last = await listed.start(config);
  expect([last.status()[0]?.state, listed.keys('tools/list')]).toEqual(['registered', ['t']]);
});

test('a stopped server that is removed from the configuration is not stopped when it is added again', async () => {
  const { listed, config, host } = await opened();
  await host.stop('a');
  await host.reconfigure({ mcpServers: {} });
  await host.reconfigure(config);
  expect([host.status()[0]?.state, listed.keys('tools/list')]).toEqual(['registered', ['t']]);
});

test('an entry that is disabled later leaves the lists at once; an idle server stays in them', async () => {
  const { listed, config, host } = await opened();
  expect([host.status()[0]?.active, listed.keys('tools/list')]).toEqual([true, ['t']]);
  const asleep = await listed.start(config);
  expect([asleep.status()[0]?.state, listed.keys('tools/list')]).toEqual(['registered', ['t']]);
  listed.told.length = 0;
  const disabled = { mcpServers: { a: { ...config.mcpServers.a, enabled: false } } };
  await asleep.reconfigure(disabled);
  expect([asleep.status()[0]?.state, listed.keys('tools/list')]).toEqual(['disabled', undefined]);
  await eventually('the change is announced', () => listed.told.includes('a'));
});
