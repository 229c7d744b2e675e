/** When a server changes a tool, answers that its old definition gave are not served from the cache any more. */
import { expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { type Era, ListedHost } from './listed-server.js';

const eras: readonly Era[] = ['legacy', 'modern'];

test.each(eras)('W24 a changed tool of a %s server drops the cached answers of its server', async (era) => {
  const listed = await ListedHost.open(era, { pins: 'warn' });
  const tool = (at: string) => ({ name: 'look', inputSchema: { type: 'object', properties: { at: { const: at } } } });
  const calls = () => listed.asked('tools/call').length;
  listed.list('a', { tools: [tool('one')] });
  await listed.host.start('a');

  await listed.host.call('a', 'look', {});
  const before = calls();
  await listed.host.call('a', 'look', {});
  expect(calls()).toBe(before);

  const lists = listed.asked('tools/list').length;
  listed.list('a', { tools: [tool('two')] });
  await listed.say('tools/list_changed');
  await eventually('the changed list is read', () => listed.asked('tools/list').length > lists);
  await eventually('the change is known', () => listed.host.status().some(({ changedTools }) => changedTools > 0));
  const changed = calls();
  await listed.host.call('a', 'look', {});
  expect(calls()).toBe(changed + 1);
});
