/**
 * Code of an embedder may fail: its listeners, its reports of problems, its providers of tokens. The host continues, and a
 * close ends everything that it started.
 */
import { describe, expect, onTestFinished, test } from 'vitest';
import { createHost } from '../../src/host/host.js';
import type { HostOptions } from '../../src/host/host-interface.js';
import type { AuthProvider } from '../../src/session/auth/auth-provider.js';
import { stdioFixtures } from '../fixtures/fixture-servers.js';
import { isAlive } from '../is-alive.js';

const raw = stdioFixtures.find(({ name }) => name === 'raw-stdio-legacy');
if (!raw) throw new Error('no fixture');
const { command, args, env } = raw;
const web = { url: 'http://127.0.0.1:1/mcp' };

async function open(options: HostOptions) {
  const config = { mcpServers: { local: { command, args, env }, web } };
  const host = await createHost(config, options);
  onTestFinished(() => host.close());
  await host.call('local', 'echo', { text: 'x' });
  const pid = host.status().find(({ name }) => name === 'local')?.pid as number;
  return { host, pid };
}

const fail = (): never => {
  throw new Error('a bug');
};

describe('a provider of tokens', () => {
  test.each([
    ['returns nothing', () => undefined],
    ['throws', fail],
    ['returns what throws', () => fail],
  ])('whose onChanged %s affects neither status, spawn nor close', async (_what, onChanged) => {
    const provider = { current: () => undefined, recover: async () => false, onChanged } as unknown as AuthProvider;
    const { host, pid } = await open({ authProvider: () => provider });
    expect(host.status().map(({ name }) => name)).toEqual(['local', 'web']);
    expect(await host.spawn({ name: 'late', ...web }, { lazy: true })).toBe('late');
    expect(isAlive(pid)).toBe(true);
    await host.close();
    expect(isAlive(pid)).toBe(false);
  });
});

test('listeners and reports that throw affect neither calls nor each other', async () => {
  const { host } = await open({ onProblem: fail });
  const heard: string[] = [];
  host.on('any', fail);
  host.on('any', ({ kind }) => heard.push(kind));
  for (let i = 0; i < 2; i++) await host.call('local', 'echo', { text: 'x' });
  await host.reload('local');
  expect(heard.filter((kind) => kind === 'call')).toHaveLength(2);
  expect(heard).toContain('state');
});

test.each([Number.NaN, '5000'])('a deadline of %j is refused by all that take one', async (given) => {
  const { host } = await open({});
  const options = { deadlineMs: given as number };
  for (const waiting of [
    host.call('local', 'echo', { text: 'x' }, options),
    host.tools('local', options),
    host.read('local', 'x:y', options),
    host.discover(options),
  ])
    await expect(waiting).rejects.toMatchObject({ code: 'invalid_request', details: { field: 'deadlineMs' } });
});
