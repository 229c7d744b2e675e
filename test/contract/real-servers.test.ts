/**
 * Third-party servers from npm: each is started, listed, called and stopped, and leaves nothing behind, also in a sandbox.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { parseServerSpec } from '../../src/config/server-spec.js';
import { Connector } from '../../src/session/connector.js';
import type { StdioChannel } from '../../src/transports/stdio/stdio-channel.js';
import { type RealServer, realServers } from '../fixtures/real-servers.js';
import { isLongTier } from '../tier.js';

const { servers, remove } = realServers();
const stateDir = mkdtempSync(path.join(os.tmpdir(), 'hostler-state-'));
afterAll(() => {
  remove();
  rmSync(stateDir, { recursive: true, force: true });
});

/** The long tier uses all servers; otherwise two are enough: `filesystem` and `memory`. */
const sandboxed = servers.filter(({ name }) => isLongTier || name === 'filesystem' || name === 'memory');

describe.each(servers)('$package', (server) => {
  test('is started, listed, called and stopped, and nothing is left', { timeout: 60_000 }, () => use(server, 'group'));
});

describe.each(sandboxed)('E7 $package in a sandbox', (server) => {
  test('is started, listed, called and stopped as without a sandbox', { timeout: 60_000 }, () =>
    use(server, 'standard'),
  );
});

async function use(server: RealServer, sandbox: 'group' | 'standard'): Promise<void> {
  const connector = new Connector({ client: { name: 'hostler-tests', version: '0', capabilities: {} }, stateDir });
  const { name, command, args, env, writablePaths } = server;
  const session = await connector.connect(parseServerSpec({ name, command, args, env, writablePaths, sandbox }));
  expect(session.facts).toMatchObject({ era: server.era, version: server.version });
  expect(JSON.parse(session.facts.serverInfo?.toString() ?? '')).toMatchObject(server.serverInfo);
  const within = { deadlineAtMs: performance.now() + 30_000 };
  expect((await session.list('tools/list', within)).items).toHaveLength(server.toolCount);
  await session.probe(within.deadlineAtMs);
  if (server.call) {
    const answer = await session.callTool(server.call.tool, JSON.stringify(server.call.args), within);
    const { content } = JSON.parse(answer.bytes.toString()) as { content: { text: string }[] };
    expect(content[0]?.text).toContain(server.call.text);
  }
  await session.close();
  expect((session.channel as StdioChannel).describe().stop).toMatchObject({ left: 0, escaped: 0 });
  expect(session.channel.counters).toEqual({ junk: 0, repaired: 0, ambiguous: 0 });
  await connector.close();
}
