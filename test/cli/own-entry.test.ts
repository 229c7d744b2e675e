/** Configurations that contain Hostler itself, as the files of connected clients do. */
import { hostname } from 'node:os';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { StatusRow } from '../../src/host/status.js';
import { eventually } from '../eventually.js';
import { fixtureEntry, Workplace } from './hostler-process.js';

let place: Workplace;
beforeEach(() => {
  place = new Workplace();
});
afterEach(() => place.remove());

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
const ownEntry = () => ({
  command: process.execPath,
  args: [main, 'up', '--stdio', '--config', place.config, '--data-dir', place.dataDir],
});
const rows = async () =>
  (JSON.parse((await place.hostler('status', '--json')).stdout) as { servers: StatusRow[] }).servers;
const toolsOf = async () =>
  (JSON.parse((await place.hostler('tools', '--json')).stdout) as { tools: { server: string }[] }).tools;

test('the other servers of the file run, and no tool is listed twice', { timeout: 120_000 }, async () => {
  place.configure({ mcpServers: { one: fixtureEntry(), Hostler: ownEntry() } });
  const up = place.up();
  const { url } = await up.ready();
  await eventually('the tools are known', async () => (await rows()).some(({ tools }) => tools > 0));
  expect((await rows()).map(({ name, state, problem }) => [name, state, problem?.message])).toEqual([
    ['hostler', 'disabled', expect.stringContaining('is Hostler itself')],
    ['one', expect.any(String), undefined],
  ]);
  expect(new Set((await toolsOf()).map(({ server }) => server))).toEqual(new Set(['one']));
  expect(up.stderr.match(/is Hostler itself/g)).toHaveLength(1);

  // The address of Hostler itself is refused as soon as it is known, and the remark about the first entry is not repeated.
  place.configure({ mcpServers: { one: fixtureEntry(), Hostler: ownEntry(), web: { type: 'http', url } } });
  await eventually('the edit is in effect', async () => (await rows()).length === 3);
  expect((await rows()).find(({ name }) => name === 'web')?.problem?.message).toContain('is Hostler itself');
  expect(up.stderr.match(/is Hostler itself/g)).toHaveLength(2);
});

test('a Hostler that listens at all addresses refuses an entry with the name of its machine', {
  timeout: 120_000,
}, async () => {
  const listen = { host: '0.0.0.0' };
  place.configure({ listen, mcpServers: { one: fixtureEntry() } });
  const up = place.up();
  const { url } = await up.ready();
  const web = { type: 'http', url: url.replace('127.0.0.1', hostname()), lazy: true };
  place.configure({ listen, mcpServers: { one: fixtureEntry(), web } });
  await eventually('the edit is in effect', async () => (await rows()).length === 2);
  expect((await rows()).find(({ name }) => name === 'web')?.problem?.message).toContain('is Hostler itself');
});

test('a file with only this entry works, also for call and tools', { timeout: 120_000 }, async () => {
  place.configure({ mcpServers: { hostler: ownEntry() } });
  expect((await place.hostler('tools', '--config', place.config)).code).toBe(0);
  const up = place.up();
  await up.ready();
  expect((await rows()).map(({ state }) => state)).toEqual(['disabled']);
  place.configure({ mcpServers: { hostler: ownEntry(), one: fixtureEntry() } });
  await eventually('an added server is there', async () => (await toolsOf()).some(({ server }) => server === 'one'));
  up.child.kill('SIGTERM');
  expect((await up.closed).code).toBe(0);
});
