/** How `hostler up --stdio` ends: with its client, with its host, and when the start fails. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import * as v2 from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { fixtureEntry, Running, Workplace } from './hostler-process.js';

const main = fileURLToPath(new URL('../../dist/cli/main.cjs', import.meta.url));

let place: Workplace;
const closers: (() => unknown)[] = [];
beforeEach(() => {
  place = new Workplace();
});
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
  await place.hostler('down');
  await place.remove();
});

const relayArgs = () => ['up', '--stdio', '--config', place.config, '--data-dir', place.dataDir];

/** A client that opens a listen stream itself, and the stderr of its relay. */
async function listening(onTools: (names: readonly string[]) => void) {
  const transport = new StdioClientTransport({
    ...{ command: process.execPath, args: [main, ...relayArgs()], stderr: 'pipe' },
    env: process.env as Record<string, string>,
  });
  let stderr = '';
  transport.stderr?.on('data', (chunk) => (stderr += chunk));
  const onChanged = (_error: unknown, tools: readonly { name: string }[] | null) =>
    onTools((tools ?? []).map(({ name }) => name));
  const client = new v2.Client(
    { name: 'hostler-test', version: '1.0.0' },
    { versionNegotiation: { mode: { pin: '2026-07-28' } }, listChanged: { tools: { onChanged, debounceMs: 0 } } },
  );
  await client.connect(transport);
  closers.push(() => client.close());
  return { client, stderr: () => stderr };
}

test('R2 a client with an open listen stream closes, and its relay connects to no other host', async () => {
  place.configure({ mcpServers: { one: fixtureEntry() }, idleExit: '1s' });
  const { client, stderr } = await listening(() => {});
  expect((await client.listTools()).tools.length).toBeGreaterThan(0);
  await client.close();
  expect(stderr().split('joined Hostler').length, stderr()).toBe(2);
  expect(stderr()).not.toContain('cannot be reached');
});

test('R2 a modern client is told to read its lists again after a restart', async () => {
  place.configure({ mcpServers: { one: fixtureEntry() }, idleExit: '1s' });
  let names: readonly string[] = [];
  const { client } = await listening((now) => (names = now));
  expect((await client.listTools()).tools.map(({ name }) => name)).toContain('one__echo');
  names = [];
  // The next host knows this list already, so it sees no change itself.
  expect((await place.hostler('restart')).code).toBe(0);
  await eventually('the client has read its list again', () => names.includes('one__echo'));
});

test('R2 a configuration that does not exist is named at once, and requests get that reason', async () => {
  place = Object.assign(place, { config: path.join(place.folder, 'missing', 'hostler.json') });
  const relay = new Running(relayArgs());
  relay.child.stdin?.end('{"jsonrpc":"2.0","id":1,"method":"ping"}\n');
  const { code, stdout, stderr } = await relay.closed;
  expect([code, stderr.split('cannot be reached').length]).toEqual([1, 2]);
  for (const text of [stdout, stderr]) expect(text).toContain(`${place.config} does not exist`);
});

test('R1 a relay that a server of the same Hostler starts is refused, and the error says why', async () => {
  const script = `${place.folder}/self.sh`;
  const command = [process.execPath, main, ...relayArgs()].map((word) => `'${word}'`).join(' ');
  writeFileSync(script, `#!/bin/sh\nexec ${command}\n`, { mode: 0o755 });
  place.configure({ mcpServers: { self: { command: script } } });
  await place.up().ready();
  await eventually('the reason is told', async () => {
    await place.hostler('call', 'self', 'any', '{}');
    const { stdout } = await place.hostler('logs', 'self');
    return stdout.includes('was started by a server of the Hostler') && stdout.includes('unset HOSTLER_RUN');
  });
});
