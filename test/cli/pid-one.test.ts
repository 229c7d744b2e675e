/**
 * `hostler up` as a container runs it: as PID 1 of a namespace, which has to reap orphans, and with signals to the whole process group,
 * as service managers send them.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import type { ProcessFacts } from '../../src/transports/stdio/process-table.js';
import { eventually } from '../eventually.js';
import { factsNow } from '../real-table.js';
import { type Ready, Workplace } from './hostler-process.js';

const command = fileURLToPath(new URL('../../dist/cli/main.cjs', import.meta.url));
const sleepyServer = fileURLToPath(new URL('../fakes/sleepy-server.pl', import.meta.url));
const namespace = ['unshare', '--pid', '--fork', '--mount-proc', '--kill-child'];
const meta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {},
};

const toEnd: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const end of toEnd) await end();
});

/** A running Hostler. Its server has left behind twelve orphans, which exit at once and have to be reaped. */
async function start(words: readonly string[]) {
  const place = new Workplace();
  const ledger = path.join(place.folder, 'ledger');
  const wrapper = 'for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (exec sleep 0.01 &); done; exec perl "$0"';
  const tools = JSON.stringify([{ name: 'work', inputSchema: { type: 'object' } }]);
  const server = { command: 'sh', args: ['-c', wrapper, sleepyServer], env: { LEDGER: ledger, TOOLS: tools } };
  place.configure({ mcpServers: { sleepy: server } });
  const options = ['--config', place.config, '--data-dir', place.dataDir, '--json', '--port=0'];
  const [file = '', ...args] = [...words, 'up', ...options];
  const env = { ...process.env, XDG_CONFIG_HOME: '/nowhere' };
  const child = spawn(file, args, { stdio: 'pipe', detached: true, env });
  const ended = once(child, 'exit');
  toEnd.push(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
    await ended;
    await place.remove();
  });
  const said = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk) => (said.stdout += chunk));
  child.stderr.on('data', (chunk) => (said.stderr += chunk));
  const line = await eventually('it serves', () => {
    if (child.exitCode !== null) throw new Error(said.stderr);
    return said.stdout.includes('\n') && said.stdout;
  });
  const { url, key } = JSON.parse(line) as Ready;
  const ran = () => read(ledger);
  await eventually('the server has started', () => ran() !== undefined);

  /** A slow call. Resolves when the server has received it. */
  const call = async (): Promise<{ readonly answer: Promise<unknown> }> => {
    const headers = {
      ...{ 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
      ...{ 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'sleepy__work' },
      authorization: `Bearer ${key}`,
    };
    const params = { name: 'sleepy__work', arguments: { nonce: 'n', sleepMs: 500 }, _meta: meta };
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params });
    const answer = fetch(url, { method: 'POST', headers, body }).then((response) => response.json());
    await eventually('the server has the call', () => ran()?.includes('start n'));
    return { answer };
  };
  return { pid: child.pid as number, ended, said, call };
}

const result = { result: { content: [{ type: 'text', text: 'n' }] } };

function read(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

/** Including processes that only wait to be reaped. */
function descendantsOf(pid: number): ProcessFacts[] {
  const all = readdirSync('/proc').flatMap((name) => (/^\d+$/.test(name) ? (factsNow(Number(name)) ?? []) : []));
  const found = new Set([pid]);
  for (const each of found) for (const facts of all) if (facts.ppid === each) found.add(facts.pid);
  return all.filter((facts) => facts.pid !== pid && found.has(facts.pid));
}

const isOrphan = ({ pid, state }: ProcessFacts): boolean =>
  state === 'Z' || read(`/proc/${pid}/comm`)?.trim() === 'sleep';

test.concurrent.each([
  ['the command itself', [...namespace, command]],
  ['node and the file of the command', [...namespace, process.execPath, command]],
])(
  'E15 E16 as PID 1, started as %s: orphans are reaped, and SIGTERM to the group lets a call finish',
  async (_name, words) => {
    const { pid: unshare, ended, said, call } = await start(words);
    await eventually('no orphan runs, and none is a zombie', () => !descendantsOf(unshare).some(isOrphan), 10_000);
    const { answer } = await call();
    // The processes that a signal to the group reaches, except `unshare`, which is no part of the container.
    for (const { pid, pgid } of descendantsOf(unshare)) if (pgid === unshare) process.kill(pid, 'SIGTERM');
    expect(await answer).toMatchObject(result);
    expect(await ended).toEqual([0, null]);
    expect(said.stderr).not.toContain('PID 1');
  },
);

test.concurrent('E16 SIGTERM to the whole process group lets a call in flight finish', async () => {
  const { pid, ended, call } = await start([process.execPath, command]);
  const { answer } = await call();
  process.kill(-pid, 'SIGTERM');
  expect(await answer).toMatchObject(result);
  expect(await ended).toEqual([0, null]);
});

test.concurrent('R1 as PID 1 `up --stdio` serves its client in its own process, and says so once', async () => {
  const place = new Workplace();
  place.configure({});
  const [file = '', ...args] = [...namespace, command, 'up', '--stdio', '--config', place.config];
  const child = spawn(file, [...args, '--data-dir', place.dataDir], { stdio: 'pipe', detached: true });
  const ended = once(child, 'exit');
  toEnd.push(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
    await ended;
    await place.remove();
  });
  const said = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk) => (said.stdout += chunk));
  child.stderr.on('data', (chunk) => (said.stderr += chunk));
  child.stdin.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n');
  await eventually('it answers', () => said.stdout.includes('"id":1'));
  // The namespace ends with PID 1, so a detached host could not outlive it.
  const hosts = descendantsOf(child.pid as number).filter(({ pid }) =>
    read(`/proc/${pid}/cmdline`)?.includes(`${place.config}\0`),
  );
  expect(hosts.filter(({ pid }) => !read(`/proc/${pid}/cmdline`)?.includes('--stdio'))).toEqual([]);
  child.stdin.end();
  expect(await ended).toEqual([0, null]);
  expect(said.stderr.split('PID 1: this process serves its client itself').length).toBe(2);
});
