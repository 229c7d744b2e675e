import { expect, test } from 'vitest';
import type { ServerList } from '../../lists.js';
import { MirroredHeaders } from './tool-headers.js';

const tool = (name: string, header: string, padding = 0) => {
  const properties = { region: { type: 'string', 'x-mcp-header': header } };
  const raw = JSON.stringify({ name, description: 'x'.repeat(padding), inputSchema: { type: 'object', properties } });
  return { key: name, raw: Buffer.from(raw) };
};
const listOf = (...items: ServerList['items']): ServerList => ({ items, pages: 1, ttlMs: 0, cacheScope: 'private' });

test('the name of the requested item and the arguments that the schema marks are sent as headers', async () => {
  const headers = new MirroredHeaders();
  await headers.learn(listOf(tool('a', 'Region')));
  expect(headers.headersOfCall('a', '{"region":"eu"}')).toEqual({ name: 'a', params: [['Region', 'eu']] });
  expect(headers.headersOf('tools/call', '{"name":"a","arguments":{"region":"eu"}}')).toEqual(
    headers.headersOfCall('a', '{"region":"eu"}'),
  );
  expect(headers.headersOf('resources/read', '{"uri":"x:y"}')).toEqual({ name: 'x:y' });
  expect([headers.headersOf('tools/list', '{}'), headers.headersOf('prompts/get', '{}')]).toEqual([
    undefined,
    undefined,
  ]);
});

test('a tool with an annotation that is not allowed is left out, with the reason', async () => {
  const headers = new MirroredHeaders();
  const { items } = await headers.learn(listOf(tool('good', 'Region'), tool('bad', 'a b')));
  expect([items.map(({ key }) => key), [...headers.dropped.keys()]]).toEqual([['good'], ['bad']]);
});

test('a long list that is still being checked does not replace a shorter list that arrived later', async () => {
  const headers = new MirroredHeaders();
  const older = headers.learn(listOf(...Array.from({ length: 4 }, () => tool('a', 'Old', 70_000))));
  await headers.learn(listOf(tool('a', 'New')));
  await older;
  expect(headers.headersOfCall('a', '{"region":"eu"}').params).toEqual([['New', 'eu']]);
});
