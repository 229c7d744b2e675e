/**
 * `hostler up` as a person or a script runs it: its first line, its errors, and its end.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { isAlive } from '../is-alive.js';
import { fixtureEntry, type Running, Workplace } from './hostler-process.js';

let place: Workplace;
beforeEach(() => {
  place = new Workplace();
});
afterEach(() => place.remove());

const initialize = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 't', version: '1' } };

/** Sends a request over stdin, as a client does, and returns the answer. */
async function ask(running: Running, id: number, method: string, params: object = {}) {
  running.child.stdin?.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
  const line = await eventually(`the answer ${id}`, () => {
    if (running.child.exitCode !== null) throw new Error(running.stderr);
    return running.stdout.split('\n').find((text) => text.includes(`"id":${id},`));
  });
  return JSON.parse(line) as { result: Record<string, unknown> };
}

/** The facts that a relay prints with `--json`. Until the process `pid` has ended, it writes to the data directory. */
async function readyOnStderr(running: Running): Promise<{ pid: number }> {
  const line = await eventually('the line on stderr', () =>
    running.stderr.split('\n').find((text) => text.startsWith('{') && text.endsWith('}')),
  );
  return JSON.parse(line) as { pid: number };
}

/** A server whose only tool takes as long as its argument says, and records that it was called. */
const sleeper = (file: string) => `
  const say = (message) => console.log(JSON.stringify({ jsonrpc: '2.0', ...message }));
  const answers = {
    initialize: () => ({ protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } }),
    'tools/list': () => ({ tools: [{ name: 'sleep', inputSchema: { type: 'object' } }] }),
  };
  require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
    const { id, method, params } = JSON.parse(line);
    if (answers[method]) return say({ id, result: answers[method]() });
    if (method !== 'tools/call') return id !== undefined && say({ id, error: { code: -32601, message: 'no' } });
    require('node:fs').writeFileSync(${JSON.stringify(file)}, '');
    setTimeout(() => say({ id, result: { content: [] } }), params.arguments.ms);
  });
`;

describe('when it serves', () => {
  test('stdout is one line of JSON, and everything else goes to stderr', async () => {
    place.configure({ mcpServers: { bad: { comand: 'x' }, good: fixtureEntry() } });
    const running = place.up();
    const ready = await running.ready();
    expect(Object.keys(ready)).toEqual(['ready', 'url', 'key', 'pid', 'dataDir', 'v']);
    expect(ready).toMatchObject({ ready: true, pid: running.child.pid, dataDir: place.dataDir });
    expect(ready.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/mcp$/);
    await eventually('the bad entry is named', () => running.stderr.includes('mcpServers.bad'));
    // The key belongs in its file, not in a log.
    const told = `the key is in ${path.join(place.dataDir, 'key')}`;
    await eventually('where the key is', () => running.stderr.includes(told));
    expect(running.stderr).not.toContain(ready.key);
    expect((await fetch(ready.url.replace('/mcp', '/healthz'))).status).toBe(200);
    expect((await fetch(ready.url, { method: 'POST', body: '{}' })).status).toBe(401);
    running.child.kill('SIGTERM');
    const { code, stdout } = await running.closed;
    expect([code, stdout.split('\n').length]).toEqual([0, 2]);
  });

  test('only its user can access the data directory and its content', async () => {
    place.configure({});
    await place.up().ready();
    const modeOf = (file: string) => statSync(path.join(place.dataDir, file)).mode & 0o777;
    expect([modeOf('.'), modeOf('control.sock'), modeOf('key')]).toEqual([0o700, 0o600, 0o600]);
  });

  test('E12 the key is printed when it is created and not after a restart, and a left-over socket is replaced', async () => {
    place.configure({});
    const begin = () => place.follow('up', '--config', place.config, '--json', '--port=0');
    const first = begin();
    const { key } = await first.ready();
    expect(readFileSync(path.join(place.dataDir, 'key'), 'utf8')).toBe(`${key}\n`);
    first.child.kill('SIGKILL');
    await first.closed;
    expect(statSync(path.join(place.dataDir, 'control.sock')).isSocket()).toBe(true);
    const second = begin();
    const ready = await second.ready();
    expect([ready.key, (second.stdout + second.stderr).includes(key)]).toEqual([null, false]);
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    expect((await fetch(ready.url, { method: 'POST', headers, body: '{}' })).status).not.toBe(401);
    expect((await place.hostler('status')).code).toBe(0);
  });

  test('E12 --show-key prints the key on every start', async () => {
    place.configure({});
    mkdirSync(place.dataDir, { mode: 0o700 });
    const key = `hk_${'k'.repeat(43)}`;
    writeFileSync(path.join(place.dataDir, 'key'), `${key}\n`, { mode: 0o600 });
    expect((await place.up('--show-key').ready()).key).toBe(key);
  });

  test('a client over stdio is served by the Hostler that runs, and leaves it running', async () => {
    place.configure({ mcpServers: { one: fixtureEntry() } });
    const { pid, url } = await place.up().ready();
    const relay = place.follow('up', '--config', place.config, '--stdio', '--json');
    expect((await ask(relay, 1, 'initialize', initialize)).result.serverInfo).toBeDefined();
    const { result } = await ask(relay, 2, 'tools/call', { name: 'one__echo', arguments: { text: 'hi' } });
    expect(JSON.stringify(result)).toContain('hi');
    const line = relay.stderr.split('\n').find((text) => text.startsWith('{')) as string;
    expect(JSON.parse(line)).toEqual({ ready: true, url, key: null, pid, dataDir: place.dataDir });
    relay.child.stdin?.end();
    expect((await relay.closed).code).toBe(0);
    expect(isAlive(pid)).toBe(true);
  });

  test('R2 `restart` of a Hostler with a terminal keeps its process, and its relays continue', async () => {
    place.configure({ mcpServers: { one: fixtureEntry() } });
    const { pid } = await place.up().ready();
    const relay = place.follow('up', '--config', place.config, '--stdio');
    await ask(relay, 1, 'initialize', initialize);
    const { stdout } = await place.hostler('restart', '--json');
    expect(JSON.parse(stdout)).toMatchObject({ pid, runs: true, newPid: pid });
    expect(JSON.stringify((await ask(relay, 2, 'tools/list')).result)).toContain('one__echo');
  });

  test('a client that connects while a Hostler ends gets the next Hostler, and the running call is answered', async () => {
    const called = path.join(place.folder, 'called');
    const one = { command: process.execPath, args: ['-e', sleeper(called)] };
    place.configure({ mcpServers: { one }, idleExit: 500 });
    const begin = () => place.follow('up', '--config', place.config, '--stdio', '--json');
    const first = begin();
    await ask(first, 1, 'initialize', initialize);
    const last = ask(first, 2, 'tools/call', { name: 'one__sleep', arguments: { ms: 2_000 } });
    await eventually('the call is at the server', () => existsSync(called));
    const down = place.hostler('down');
    await eventually('it ends', () => !existsSync(path.join(place.dataDir, 'stdio.sock')));
    const second = begin();
    expect((await ask(second, 1, 'initialize', initialize)).result.serverInfo).toBeDefined();
    expect((await last).result).toEqual({ content: [] });
    expect([(await first.closed).code, (await down).code]).toEqual([0, 0]);
    expect(JSON.stringify((await ask(second, 2, 'tools/list')).result)).toContain('one__sleep');
    const { pid } = await readyOnStderr(second);
    second.child.stdin?.end();
    await second.closed;
    await eventually('the host has ended', () => !isAlive(pid));
  });

  test('E12 over stdio, stdout belongs to the client, no key is printed, and the process ends with its client', async () => {
    place.configure({ idleExit: 500 });
    const running = place.follow('up', '--config', place.config, '--stdio', '--json');
    const { pid, ...rest } = await readyOnStderr(running);
    expect(rest).toMatchObject({ ready: true, url: null, key: null });
    running.child.stdin?.end();
    expect(await running.closed).toMatchObject({ code: 0, stdout: '' });
    expect(running.stderr).not.toContain(readFileSync(path.join(place.dataDir, 'key'), 'utf8').trim());
    await eventually('the host has ended', () => !isAlive(pid));
    expect(existsSync(path.join(place.dataDir, 'control.sock'))).toBe(false);
  });
});

describe('when it cannot serve it prints the reason and what to do', () => {
  const ended = async (...args: string[]) => {
    const { code, stdout, stderr } = await place.up(...args).closed;
    return { code, stdout, said: stderr };
  };

  test('a port in use is named, with the alternative', async () => {
    const pidFile = path.join(place.folder, 'started');
    const eager = { command: 'sh', args: ['-c', `echo > '${pidFile}'; sleep 60`], lazy: false };
    place.configure({ mcpServers: { eager } });
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
    const { port } = taken.address() as { port: number };
    const { code, stdout, said } = await ended(`--port=${port}`);
    taken.close();
    expect([code, stdout]).toEqual([1, '']);
    expect(said).toContain(`port ${port} of 127.0.0.1 is already in use`);
    expect(said).toContain('--port 0');
    expect(existsSync(pidFile), 'a server was started for nothing').toBe(false);
  });

  test('a data directory that another Hostler uses: the error has the pid of that Hostler', async () => {
    place.configure({});
    const { pid } = await place.up().ready();
    const { code, said } = await ended();
    expect([code, said]).toEqual([1, expect.stringContaining(`another Hostler (pid ${pid}) uses this data directory`)]);
    expect(said).toContain('hostler down');
    expect((await place.hostler('status')).code).toBe(0);
  });

  test.each([
    ['a broken text, with line and column', '{\n  "mcpServers": {},\n  oops\n}', /hostler\.json:3:3: /],
    ['a key that is not known', '{ "mcpservers": {} }', /hostler\.json:\d+:\d+: mcpservers: is not a key/],
  ])('%s', async (_name, text, message) => {
    place.configure(text);
    const { code, said } = await ended();
    expect(said).toMatch(message);
    expect(code).toBe(1);
  });

  test('--auth none at an address that other machines can reach: wrong usage', async () => {
    place.configure({});
    const { code, said } = await ended('--auth', 'none', '--host', '0.0.0.0');
    expect([code, said.includes('listen on 127.0.0.1 only')]).toEqual([2, true]);
  });

  test('no configuration: the error shows an example of one', async () => {
    const { code, stderr } = await place.follow('up').closed;
    expect([code, stderr.includes('{"mcpServers": ')]).toEqual([1, true]);
  });
});

describe('how it ends', () => {
  test.each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)('%s stops everything', async (signal) => {
    place.configure({ mcpServers: { eager: { ...fixtureEntry(), lazy: false } } });
    const running = place.up();
    await running.ready();
    const rows = await eventually('the server runs', async () => {
      const { stdout } = await place.hostler('status', '--json');
      const { servers } = JSON.parse(stdout) as { servers: { state: string; pid?: number }[] };
      return servers[0]?.state === 'ready' && servers;
    });
    const pid = rows[0]?.pid as number;
    expect(isAlive(pid)).toBe(true);
    running.child.kill(signal);
    expect((await running.closed).code).toBe(0);
    expect(isAlive(pid)).toBe(false);
    expect((await place.hostler('status')).code).toBe(1);
  });

  test('a second signal ends Hostler and its servers at once', async () => {
    const pidFile = path.join(place.folder, 'pid');
    const stubborn = `echo $$ > '${pidFile}'; trap '' TERM; while :; do sleep 0.1; done`;
    place.configure({ mcpServers: { stubborn: { command: 'sh', args: ['-c', stubborn], lazy: false } } });
    const running = place.up();
    await running.ready();
    // The shell creates the file before it writes its pid. An empty file would be read as 0, which means the own process group.
    const pid = await eventually(
      'it runs',
      () => existsSync(pidFile) && (Number(readFileSync(pidFile, 'utf8')) || false),
    );
    running.child.kill('SIGINT');
    await eventually('it says that it stops', () => running.stderr.includes('again to stop at once'));
    running.child.kill('SIGINT');
    expect((await running.closed).code).toBe(1);
    await eventually('the server is gone', () => !isAlive(pid));
  });
});

describe('the file is watched', () => {
  test('an edit takes effect at once, and does not affect other entries', async () => {
    const pids = async () => {
      const { stdout } = await place.hostler('status', '--json');
      const { servers } = JSON.parse(stdout) as { servers: { name: string; pid?: number; state: string }[] };
      return servers.every(({ state }) => state === 'ready') && new Map(servers.map(({ name, pid }) => [name, pid]));
    };
    const eager = { ...fixtureEntry(), lazy: false };
    place.configure({ mcpServers: { stays: eager, goes: eager } });
    await place.up().ready();
    const before = await eventually('both run', pids);
    place.configure({ mcpServers: { stays: eager, comes: eager } });
    const after = await eventually('the new one runs', async () => {
      const now = await pids();
      return now !== false && now.has('comes') && now;
    });
    expect([[...after.keys()], after.get('stays')]).toEqual([['comes', 'stays'], before.get('stays')]);
    await eventually('the old one is gone', () => !isAlive(before.get('goes') as number));
  });

  test('a removed key is refused at once, however long a server takes to stop', async () => {
    const stubborn = `trap '' TERM; while :; do sleep 0.1; done`;
    const keys = { ann: { hash: `sha256:${createHash('sha256').update('key-of-ann').digest('hex')}` } };
    place.configure({ mcpServers: { stubborn: { command: 'sh', args: ['-c', stubborn], lazy: false } }, keys });
    const running = place.up();
    const { url } = await running.ready();
    const statusNow = async () => {
      const headers = { authorization: 'Bearer key-of-ann', 'content-type': 'application/json' };
      return (await fetch(url, { method: 'POST', headers, body: '{}' })).status;
    };
    expect(await statusNow()).not.toBe(401);
    place.configure({ mcpServers: {} });
    await eventually('the key does not count', async () => (await statusNow()) === 401);
    expect(running.stderr).not.toContain('is in effect');
  });

  test('a server that hangs at its start is reported by the end of the start only', async () => {
    place.configure({ mcpServers: { hung: { command: 'sleep', args: ['1000'], timeouts: { start: '300ms' } } } });
    const running = place.up();
    await running.ready();
    await eventually('the start has failed', () => running.stderr.includes("'hung' did not become ready"));
    expect(running.stderr).not.toContain('keeps reconnecting');
  });

  test('a start that waits for nats-server reports it, and ends at once when it is stopped', async () => {
    place.configure({ mcpServers: {}, broker: { url: 'nats://127.0.0.1:1', durability: 'process' } });
    const running = place.up();
    await eventually('the wait is reported', () => running.stderr.includes('the NATS server cannot be reached'));
    expect((await place.hostler('down')).code).toBe(0);
    expect((await running.closed).code).toBe(1);
    expect(running.stderr.split('cannot be reached')).toHaveLength(2);
  });

  test('a broken edit changes nothing and is reported', async () => {
    place.configure({ mcpServers: { good: fixtureEntry() } });
    const running = place.up();
    await running.ready();
    // As editors save: another file, renamed.
    writeFileSync(`${place.config}.new`, '{ "mcpServers": ');
    renameSync(`${place.config}.new`, place.config);
    await eventually('it is told', () => /stays in effect\n.*hostler\.json:1:17: /.test(running.stderr));
    expect((await place.hostler('call', 'good', 'echo', '{"text":"still here"}')).stdout).toContain('still here');
  });
});
