import { expect, test } from 'vitest';
import { manifestBody, readManifestBody } from '../protocol/reply-body.js';
import { findTools } from './remote-tools.js';

const tool = (server: string, name: string, text = '{}') => ({ server, name, raw: Buffer.from(text) });
const manifest = {
  revision: 'r',
  tools: [tool('a', 'run'), tool('b', 'run'), tool('b', 'run', '{"second":1}'), tool('b', 'constructor')],
};
const found = (server: string | undefined, name: string) =>
  findTools(manifest.tools, { server, tool: name }).map((each) => `${each.server}/${each.name}${each.raw}`);

test('finds a tool by its server and name, the first of two', () => {
  expect(found('b', 'run')).toEqual(['b/run{}']);
  expect(found('c', 'run')).toEqual([]);
  expect(found('b', 'constructor')).toEqual(['b/constructor{}']);
  expect(found(undefined, 'toString')).toEqual([]);
});

test('finds all tools of the name if no server is named', () => {
  expect(found(undefined, 'run')).toEqual(['a/run{}', 'b/run{}', 'b/run{"second":1}']);
});

test('cannot be changed', () => {
  const { tools } = readManifestBody(manifestBody(manifest));
  expect(() => (tools as unknown[]).push(1)).toThrow(TypeError);
});
