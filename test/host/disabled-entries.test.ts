/** Invalid entries of the configuration, as an embedder sees them. No process is started. */
import { once } from 'node:events';
import { afterEach, expect, test } from 'vitest';
import { createHost, type Host } from '../../src/host/host.js';
import type { HostConfig } from '../../src/host/host-interface.js';
import type { HostError } from '../../src/kernel/errors.js';
import { Connector } from '../../src/session/connector.js';
import { failureOf } from './harness.js';

let host: Host | undefined;
const problems: HostError[] = [];
afterEach(async () => {
  await host?.close();
  host = undefined;
  problems.length = 0;
});

async function open(config: HostConfig): Promise<Host> {
  host = await createHost(config, { onProblem: (problem) => problems.push(problem as HostError) });
  return host;
}

const good = { command: 'node' };
const stateOf = (name: string) => host?.status().find((row) => row.name === name)?.state;

test('E10 an entry whose url is not a URL is a disabled server with that reason, and the others run', async () => {
  await open({ mcpServers: { bad: { url: 'example.com/mcp' }, good } });
  expect([stateOf('bad'), stateOf('good')]).toEqual(['disabled', 'registered']);
  const [row] = host?.status() ?? [];
  const reason = 'mcpServers.bad.url: must be an http or https URL: write https://example.com instead of example.com';
  expect(row?.lastError?.message).toBe(`${reason}; correct this entry; the other servers are not affected`);
  expect(problems.map(({ message }) => message)).toEqual([reason]);
  const refusal = await failureOf((host as Host).call('bad', 'any'));
  expect([refusal.code, refusal.message]).toEqual([
    'server_disabled',
    `server 'bad' is disabled because its configuration entry is invalid: ${reason}`,
  ]);
  expect(host?.explain('bad').call).toMatchObject({ outcome: 'refused', code: 'server_disabled' });
  expect((await failureOf((host as Host).start('bad'))).code).toBe('server_disabled');
});

test('E10 a corrected entry replaces the disabled server; a running server keeps its name when its entry becomes invalid', async () => {
  await open({ mcpServers: { a: { comand: 'typo' }, b: good } });
  await host?.reconfigure({ mcpServers: { a: good, b: { ...good, lazy: 'yes' } } });
  expect([stateOf('a'), stateOf('b')]).toEqual(['registered', 'registered']);
  await host?.reconfigure({ mcpServers: { c: 5 } });
  expect(host?.status().map(({ name, state }) => [name, state])).toEqual([['c', 'disabled']]);
  await host?.reconfigure({});
  expect(host?.names()).toEqual([]);
});

test('E10 names of any kind are shown in one short line', async () => {
  const long = 'x'.repeat(5_000);
  await open({ mcpServers: { good, [long]: good, 'a\u001b[31m': good, ['__proto__']: good, constructor: good } });
  const rows = host?.status() ?? [];
  expect(rows.filter(({ state }) => state === 'registered').map(({ name }) => name)).toEqual([
    'a-31m',
    'constructor',
    'good',
    'proto__',
  ]);
  const disabled = rows.filter(({ state }) => state === 'disabled').map(({ name }) => name);
  expect(disabled).toEqual([expect.stringMatching(/^x{55}-[0-9a-f]{8}$/)]);
});

test('E10 without onProblem a mistyped entry is a process warning and a disabled server', async () => {
  const warned = once(process, 'warning');
  host = await createHost({ mcpServers: { bad: { comand: 'node' }, good } });
  const [warning] = (await warned) as [Error & { code: string }];
  expect([warning.name, warning.code]).toEqual(['HostlerWarning', 'invalid_spec']);
  expect(warning.message).toContain('mcpServers.bad');
  expect([stateOf('bad'), stateOf('good')]).toEqual(['disabled', 'registered']);
});

test('E10 an entry whose getter throws is disabled alone, in the configuration and when it is spawned', async () => {
  const throwing = Object.defineProperty({}, 'command', { enumerable: true, get: () => expect.unreachable() });
  await open({ mcpServers: { bad: throwing, good } });
  expect([stateOf('bad'), stateOf('good')]).toEqual(['disabled', 'registered']);
  const spawned = await failureOf((host as Host).spawn({ name: 'late', ...{ url: 'example.com' } }));
  expect(spawned).toMatchObject({ code: 'invalid_spec', details: { field: 'url' } });
  const hostile = Object.defineProperty({}, 'name', { enumerable: true, get: () => expect.unreachable() });
  expect((await failureOf((host as Host).spawn(hostile as never))).code).toBe('invalid_spec');
});

test('E10 a connector rejects a definition that is not a URL, and throws nothing', async () => {
  const connector = new Connector({ client: { name: 'test', version: '0', capabilities: {} } });
  const spec = { name: 'bad', url: 'example.com/mcp', headers: {}, transport: 'auto' } as const;
  expect((await failureOf(connector.connect(spec))).code).toBe('invalid_spec');
  await connector.close();
});
