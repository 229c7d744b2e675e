/**
 * `hostler up --stdio` at full counts and real times: 256 relay processes at one host, the end of the host after its last client, and two
 * installed versions at one host.
 */
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { fixtureEntry, Workplace } from '../cli/hostler-process.js';
import { eventually } from '../eventually.js';
import { connectSdk1Client, type SdkClient } from '../fixtures/sdk-clients.js';
import { isAlive } from '../is-alive.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const relayCount = 256;
const joinedAtOnce = 8;

let place: Workplace;
const clients: SdkClient[] = [];
beforeEach(() => {
  place = new Workplace();
});
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.close().catch(() => {})));
  await place.hostler('down');
  await place.remove();
});

const connect = async (packageFolder = root): Promise<SdkClient> => {
  const main = path.join(packageFolder, 'dist/cli/main.cjs');
  const args = [main, 'up', '--stdio', '--config', place.config, '--data-dir', place.dataDir];
  const env = process.env as Record<string, string>;
  const client = await connectSdk1Client({ kind: 'stdio', command: process.execPath, args, env }, []);
  clients.push(client);
  return client;
};
const close = async (client: SdkClient) => {
  clients.splice(clients.indexOf(client), 1);
  await client.close();
};
const echo = async (client: SdkClient, text: string) => {
  const { content } = await client.request('tools/call', { name: 'one__echo', arguments: { text } });
  return (content as { text: string }[])[0]?.text;
};

interface Facts {
  readonly pid: number;
  readonly version: string;
  readonly relays: number;
  readonly upgradePending?: string;
  readonly servers: readonly { readonly pid?: number }[];
}
async function status(): Promise<Facts> {
  const { code, stdout, stderr } = await place.hostler('status', '--json');
  if (code !== 0) throw new Error(stderr);
  return JSON.parse(stdout) as Facts;
}
const commandOf = (pid: string): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
};
const processes = () =>
  readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && commandOf(pid).includes(place.config));
const rssOf = (pid: number): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1_024;

test(`R1 ${relayCount} relays at one host are all served, at once`, async () => {
  place.configure({ mcpServers: { one: fixtureEntry() }, idleExit: '5s' });
  await connect();
  const { pid } = await status();
  const before = rssOf(pid);
  while (clients.length < relayCount)
    await Promise.all(Array.from({ length: Math.min(joinedAtOnce, relayCount - clients.length) }, () => connect()));
  expect(await status()).toMatchObject({ pid, relays: relayCount });
  const texts = clients.map((_, at) => `text ${at}`);
  const startedMs = performance.now();
  expect(await Promise.all(clients.map((client, at) => echo(client, texts[at] as string)))).toEqual(texts);
  const tookMs = Math.round(performance.now() - startedMs);
  const grownMb = (rssOf(pid) - before).toFixed(1);
  console.log(`R1 ${relayCount} relays, one call each at once: ${tookMs} ms; the host grew by ${grownMb} MB`);
});

const endings = [
  { name: 'whose servers end when stdin closes', limitMs: 35_000, server: fixtureEntry() },
  {
    name: 'with a server that ignores stdin and SIGTERM',
    limitMs: 50_000,
    server: {
      command: 'sh',
      args: ['-c', `trap '' TERM; "$0" "$@"; while :; do sleep 1; done`, ...commandWords()],
      env: fixtureEntry().env,
    },
  },
];

test.each(endings)(
  'R4 $limitMs ms after the last client no process of a host $name is left',
  async ({ name, limitMs, server }) => {
    place.configure({ mcpServers: { one: server } });
    const [first, second] = [await connect(), await connect()];
    expect(await echo(second, 'x')).toBe('x');
    const { pid, servers } = await status();
    const ids = [pid, ...servers.flatMap((each) => each.pid ?? [])];
    expect(ids.length).toBe(2);
    await close(first);
    await close(second);
    const leftMs = performance.now();
    await eventually('no process is left', () => processes().length === 0 && !ids.some(isAlive), limitMs);
    const tookMs = Math.round(performance.now() - leftMs);
    // The default of idleExit.
    expect(tookMs).toBeGreaterThan(25_000);
    console.log(`R4 a host ${name}: nothing left ${tookMs} ms after the last client`);
  },
);

function commandWords(): string[] {
  const { command, args } = fixtureEntry();
  return [command as string, ...(args as string[])];
}

/** This package with another version number. */
function otherVersion(version: string): string {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-other-'));
  cpSync(path.join(root, 'dist'), path.join(folder, 'dist'), { recursive: true });
  symlinkSync(path.join(root, 'node_modules'), path.join(folder, 'node_modules'));
  const manifest = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as object;
  writeFileSync(path.join(folder, 'package.json'), JSON.stringify({ ...manifest, version }));
  return folder;
}

test('R3 a newer version that joins replaces a host whose servers only idle; no client notices', async () => {
  const newer = otherVersion('99.0.0');
  try {
    place.configure({ mcpServers: { one: fixtureEntry() } });
    const older = await connect();
    expect(await echo(older, 'a')).toBe('a');
    const upgraded = await connect(newer);
    expect(await echo(upgraded, 'b')).toBe('b');
    // Between the two hosts none answers.
    await eventually('the newer host', async () => (await status().catch(() => undefined))?.version === '99.0.0');
    expect([await echo(older, 'c'), await echo(upgraded, 'd')]).toEqual(['c', 'd']);
  } finally {
    rmSync(newer, { recursive: true, force: true });
  }
});

test('R3 a newer version joins the host, is shown as pending, and takes over at a restart; an older one never does', async () => {
  const newer = otherVersion('99.0.0');
  try {
    // The instances of clients delay the upgrade.
    place.configure({ mcpServers: { one: { ...fixtureEntry(), isolation: 'per-client' } } });
    const older = await connect();
    expect(await echo(older, 'a')).toBe('a');
    const before = await status();
    const upgraded = await connect(newer);
    expect(await echo(upgraded, 'b')).toBe('b');
    expect(await status()).toMatchObject({ pid: before.pid, relays: 2, upgradePending: '99.0.0' });
    await place.hostler('restart');
    expect([await echo(upgraded, 'c'), await echo(older, 'd')]).toEqual(['c', 'd']);
    const after = await status();
    expect(after.pid).not.toBe(before.pid);
    expect(after).toMatchObject({ version: '99.0.0', relays: 2 });
    // An older relay never replaces a newer host.
    await close(upgraded);
    const another = await connect();
    expect([await echo(another, 'e'), (await status()).pid]).toEqual(['e', after.pid]);
    expect(await status()).not.toHaveProperty('upgradePending');
  } finally {
    rmSync(newer, { recursive: true, force: true });
  }
});
