/**
 * `hostler up --stdio` as clients start it: a relay to a host that outlives it. The clients are those of both SDKs, and lines
 * that the test writes itself; the ledger of the server shows which calls really ran.
 */
import { existsSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { connectSdk1Client, connectSdk2Client, type SdkClient } from '../fixtures/sdk-clients.js';
import { isAlive } from '../is-alive.js';
import { factsNow } from '../real-table.js';
import { fixtureEntry, Running, Workplace } from './hostler-process.js';

const main = fileURLToPath(new URL('../../dist/cli/main.cjs', import.meta.url));
const idleExit = '1s';

let place: Workplace;
const clients: SdkClient[] = [];
beforeEach(() => {
  place = new Workplace();
});
afterEach(async () => {
  for (const client of clients.splice(0)) await client.close().catch(() => {});
  const pid = hostPid();
  if (pid !== undefined && isAlive(pid)) process.kill(pid, 'SIGKILL');
  await place.remove();
});

interface Facts {
  readonly pid: number;
  readonly relays: number;
  readonly notes: readonly string[];
  readonly startedAt: string;
  readonly upgradePending?: string;
  readonly servers: readonly { readonly pid?: number }[];
}

async function status(): Promise<Facts> {
  const { code, stdout, stderr } = await place.hostler('status', '--json');
  if (code !== 0) throw new Error(stderr);
  return JSON.parse(stdout) as Facts;
}

/** Processes that run with the configuration of this test: the relays and the host. */
const processes = (): number[] =>
  readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && commandOf(pid).includes(place.config));
const commandOf = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
};
/** The fields after the name, which may contain blanks: state, parent, group, session. */
const sessionOf = (pid: number) => readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ')[3];
const hostPid = (): number | undefined => processes().find((pid) => !commandOf(pid).includes('--stdio'));

const relayArgs = () => ['up', '--stdio', '--config', place.config, '--data-dir', place.dataDir];
const target = (env: Record<string, string> = {}) => ({
  ...{ kind: 'stdio' as const, command: process.execPath, args: [main, ...relayArgs()] },
  env: { ...(process.env as Record<string, string>), ...env },
});
const sdk1 = async () => keep(await connectSdk1Client(target(), []));
const sdk2 = async (era: 'legacy' | 'modern' = 'modern') => keep(await connectSdk2Client(target(), [], era));
const keep = (client: SdkClient) => {
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

const placeholder = (inside: string) => `\${${inside}}`;

/** A server that records each call in the ledger before it answers the call. */
const ledgerServer = (file: string) => `
  const say = (message) => console.log(JSON.stringify({ jsonrpc: '2.0', ...message }));
  const answers = {
    initialize: () => ({ protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } }),
    'tools/list': () => ({ tools: [{ name: 'note', inputSchema: { type: 'object' } }] }),
  };
  require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
    const { id, method, params } = JSON.parse(line);
    if (answers[method]) return say({ id, result: answers[method]() });
    if (method !== 'tools/call') return id !== undefined && say({ id, error: { code: -32601, message: 'no' } });
    const { nonce, ms = 0 } = params.arguments;
    require('node:fs').appendFileSync(${JSON.stringify(file)}, nonce + '\\n');
    setTimeout(() => say({ id, result: { content: [{ type: 'text', text: nonce }] } }), ms);
  });
`;
const withLedger = () => {
  const ledger = path.join(place.folder, 'ledger');
  writeFileSync(ledger, '');
  place.configure({ mcpServers: { one: { command: process.execPath, args: ['-e', ledgerServer(ledger)] } }, idleExit });
  return () => readFileSync(ledger, 'utf8').split('\n').filter(Boolean);
};

describe('R1 the host outlives the client that started it', () => {
  test('two clients at once get one host, and the end of the first does not affect the second', async () => {
    place.configure({ mcpServers: { one: fixtureEntry() }, idleExit });
    const [first, second] = await Promise.all([sdk1(), sdk2()]);
    const { pid, servers } = await eventually('both have joined', async () => {
      const facts = await status();
      return facts.relays === 2 && facts;
    });
    expect(processes().length).toBe(3);
    const host = factsNow(pid);
    const relay = processes().filter((each) => each !== pid);
    expect(relay).not.toContain(host?.ppid);
    expect(sessionOf(pid)).not.toBe(sessionOf(process.pid));
    expect(readlinkSync(`/proc/${pid}/cwd`)).toBe(place.folder);
    expect(statSync(path.join(place.dataDir, 'host.log')).mode & 0o777).toBe(0o600);
    expect(statSync(path.join(place.dataDir, 'stdio.sock')).mode & 0o777).toBe(0o600);
    expect(await echo(first, 'one')).toBe('one');
    // Closes as the official SDK does: it ends stdin, waits for 2 s, and sends SIGTERM.
    await close(first);
    expect(await echo(second, 'still here')).toBe('still here');
    expect((await status()).pid).toBe(pid);
    expect(servers.length).toBe(1);
  });

  test.each([
    ['in the order they came', [0, 1]],
    ['the last one first', [1, 0]],
  ])('clients that leave %s leave no process behind', async (_name, order) => {
    place.configure({ mcpServers: { one: fixtureEntry() }, idleExit });
    const both = [await sdk1(), await sdk2('legacy')];
    expect(await echo(both[1] as SdkClient, 'x')).toBe('x');
    const { servers } = await status();
    for (const at of order) await close(both[at] as SdkClient);
    await eventually('no process is left', () => processes().length === 0);
    expect(isAlive(servers[0]?.pid as number)).toBe(false);
    expect(readdirSync(place.dataDir).filter((name) => name.endsWith('.sock') || name.endsWith('.lock'))).toEqual([]);
  });

  test('a relay that exits leaves no descriptor of its client open', async () => {
    place.configure({ idleExit });
    const relay = new Running(relayArgs());
    await eventually('it has joined', () => relay.stderr.includes('joined Hostler'));
    const pid = hostPid() as number;
    relay.child.stdin?.end();
    // `closed` needs the end of stderr, which a host with that descriptor would keep open.
    expect((await relay.closed).code).toBe(0);
    expect(isAlive(pid)).toBe(true);
  });

  test('the relay prints what the host logs until it is ready; SIGHUP ends the relay and not the host', async () => {
    place.configure({ mcpServers: { wrong: { comand: 'x' } }, idleExit });
    const relay = new Running(relayArgs());
    await eventually('it has joined', () => relay.stderr.includes('joined Hostler'));
    expect(relay.stderr).toMatch(/ warn {2}.*mcpServers\.wrong: needs a command[\s\S]* joined Hostler/);
    const pid = hostPid() as number;
    relay.child.kill('SIGHUP');
    expect((await relay.closed).code).toBe(0);
    expect(isAlive(pid)).toBe(true);
  });
});

test('R1 a socket that was removed from the data directory is made again for the next client', async () => {
  place.configure({ mcpServers: { one: fixtureEntry() }, idleExit });
  const first = await sdk1();
  const { pid } = await status();
  const socket = path.join(place.dataDir, 'stdio.sock');
  rmSync(socket);
  expect(await echo(await sdk2(), 'second')).toBe('second');
  expect(await echo(first, 'first')).toBe('first');
  expect(await status()).toMatchObject({ pid, relays: 2 });
  expect(statSync(socket).mode & 0o777).toBe(0o600);
});

describe('R2 a lost host', () => {
  test('killed under load: the relay starts another, no call runs twice, and every call is answered', async () => {
    const ledger = withLedger();
    const client = await sdk1();
    await client.request('tools/list');
    const outcomes: string[] = [];
    const calls: Promise<void>[] = [];
    const call = (nonce: string) =>
      calls.push(
        client.request('tools/call', { name: 'one__note', arguments: { nonce, ms: 40 } }).then((result) => {
          const code = (result._meta as { 'hostler/error'?: { code: string } })?.['hostler/error']?.code;
          outcomes.push(code ?? 'ok');
        }),
      );
    const before = (await status()).pid;
    for (let n = 0; n < 30; n++) {
      call(`n${n}`);
      if (n === 15) {
        await eventually('calls are at the server', () => ledger().length > 5);
        process.kill(before, 'SIGKILL');
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    await Promise.all(calls);
    const executed = ledger();
    expect(new Set(executed).size, 'a call was executed twice').toBe(executed.length);
    expect([...new Set(outcomes)].sort()).toEqual(['ok', 'outcome_uncertain']);
    expect(outcomes.length).toBe(30);
    expect((await status()).pid).not.toBe(before);
    // The relay has opened the session again at the new host: the client continues without a new initialize.
    expect(JSON.stringify(await client.request('tools/list'))).toContain('one__note');
  });

  test('a request after `restart` starts the next host, and the session continues', async () => {
    const ledger = withLedger();
    const [client, modern] = [await sdk1(), await sdk2()];
    const { pid } = await status();
    // A call that is running is answered by the host that ends.
    const running = client.request('tools/call', { name: 'one__note', arguments: { nonce: 'a', ms: 300 } });
    await eventually('the call is at the server', () => ledger().length === 1);
    const restarted = await place.hostler('restart');
    expect(restarted).toMatchObject({ code: 0, stdout: expect.stringContaining('next request') });
    expect(JSON.stringify(await running)).toContain('"text":"a"');
    expect(isAlive(pid)).toBe(false);
    for (const each of [client, modern]) {
      const result = await each.request('tools/call', { name: 'one__note', arguments: { nonce: 'b' } });
      expect(JSON.stringify(result)).toContain('"text":"b"');
    }
    expect((await status()).pid).not.toBe(pid);
    expect(ledger()).toEqual(['a', 'b', 'b']);
  });

  test('the relay prints each line of the next host once', async () => {
    place.configure({ mcpServers: { wrong: { comand: 'x' }, one: fixtureEntry() }, idleExit });
    const relay = new Running(relayArgs());
    const joined = (times: number) => () => relay.stderr.split('joined Hostler').length === times + 1;
    await eventually('it has joined', joined(1));
    expect((await place.hostler('restart')).code).toBe(0);
    relay.child.stdin?.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n');
    await eventually('it has joined again', joined(2));
    relay.child.stdin?.end();
    const lines = (await relay.closed).stderr.split('\n').filter((line) => line.includes('wrong: needs a command'));
    // One line of each host; the lines differ in their time.
    expect([lines.length, new Set(lines).size]).toEqual([2, 2]);
  });

  test('after `down` relays exit with 0', async () => {
    place.configure({ idleExit });
    const relays = [new Running(relayArgs()), new Running(relayArgs())];
    for (const relay of relays) await eventually('it has joined', () => relay.stderr.includes('joined Hostler'));
    expect((await place.hostler('down')).code).toBe(0);
    for (const relay of relays) expect((await relay.closed).code).toBe(0);
    expect(processes()).toEqual([]);
  });
});

describe('R3 one host for one configuration and one environment', () => {
  test('another configuration with the same data directory is refused with both paths and exit code 2', async () => {
    place.configure({ idleExit });
    await sdk1();
    const other = path.join(place.folder, 'other.json');
    writeFileSync(other, '{}');
    for (const kind of ['--stdio', '--port=0']) {
      const args = ['up', kind, '--config', other, '--data-dir', place.dataDir];
      const { code, stderr } = await new Running(args).closed;
      expect([code, stderr]).toEqual([2, expect.stringContaining(place.config)]);
      expect(stderr).toContain(other);
    }
  });

  test('plain `up` is refused while a host runs that a client started, and works after the commands in the hint', async () => {
    place.configure({ mcpServers: { one: fixtureEntry() }, idleExit });
    const client = await sdk1();
    const { pid } = await status();
    const refused = await place.up().closed;
    expect([refused.code, refused.stdout]).toEqual([1, '']);
    expect(refused.stderr).toContain(`(pid ${pid}) runs this configuration already, started by a client`);
    expect(refused.stderr).toContain('to serve HTTP: hostler down, then hostler up');
    expect([await echo(client, 'x'), (await status()).pid]).toEqual(['x', pid]);
    expect((await place.hostler('down')).code).toBe(0);
    const served = await place.up().ready();
    expect((await fetch(served.url.replace('/mcp', '/healthz'))).status).toBe(200);
    expect(await echo(await sdk1(), 'y')).toBe('y');
    expect((await status()).pid).toBe(served.pid);
  });

  test('a differing variable is named, but not its value; a missing variable is added', async () => {
    const server = {
      ...fixtureEntry(),
      env: { ...(fixtureEntry().env as object), A: placeholder('env:TOKEN_A'), B: placeholder('TOKEN_B') },
    };
    place.configure({ mcpServers: { one: server }, idleExit });
    const first = keep(await connectSdk1Client(target({ TOKEN_A: 'value-of-the-first' }), []));
    const relay = new Running([...relayArgs(), '--port', '1'], {
      TOKEN_A: 'value-of-the-second',
      TOKEN_B: 'new-value',
    });
    await eventually('it has joined', () => relay.stderr.includes('joined Hostler'));
    await eventually('the variable is named', () => relay.stderr.includes('TOKEN_A'));
    await eventually('the option is named', () => relay.stderr.includes('--port has no effect'));
    const facts = await status();
    expect(facts.notes.join()).toContain('TOKEN_A');
    expect(facts.notes.join()).not.toContain('TOKEN_B');
    await eventually('the added variable makes the entry usable', async () => (await echo(first, 'x')) === 'x');
    const shown = [
      relay.stderr,
      JSON.stringify(facts),
      readFileSync(path.join(place.dataDir, 'host.log'), 'utf8'),
    ].join();
    for (const value of ['value-of-the-first', 'value-of-the-second', 'new-value']) expect(shown).not.toContain(value);
    relay.child.stdin?.end();
    await relay.closed;
    await eventually('the note is gone with the client', async () => (await status()).notes.length === 0);
  });

  test('--json names the host, and never a key', async () => {
    place.configure({ idleExit });
    const relay = new Running([...relayArgs(), '--json']);
    const line = await eventually('the line', () => relay.stderr.split('\n').find((text) => text.startsWith('{')));
    const { pid } = await status();
    expect(JSON.parse(line)).toEqual({ ready: true, url: null, key: null, pid, dataDir: place.dataDir });
    expect(relay.stderr).not.toContain(readFileSync(path.join(place.dataDir, 'key'), 'utf8').trim());
    relay.child.stdin?.end();
    await relay.closed;
  });

  const greet = (hostler: number, version: string) =>
    new Promise<{ refused?: string }>((resolve) => {
      const socket = connect(path.join(place.dataDir, 'stdio.sock'));
      const hello = { hostler, version, client: `c${hostler}`, config: place.config, env: {}, options: {} };
      socket.write(`${JSON.stringify(hello)}\n`);
      socket.once('data', (chunk) => {
        socket.destroy();
        resolve(JSON.parse(String(chunk).split('\n')[0] as string) as { refused?: string });
      });
    });

  test('a pending upgrade is in status and doctor, also of a host that is not replaced by itself', async () => {
    place.configure({});
    await place.up().ready();
    expect(await greet(1, '99.0.0')).not.toHaveProperty('refused');
    const said = /upgrade pending: a client has version 99\.0\.0, .*hostler restart/;
    for (const command of ['status', 'doctor']) expect((await place.hostler(command)).stdout).toMatch(said);
  });

  test('a newer relay marks the host, a newer protocol replaces it, and an older one does not', async () => {
    place.configure({ idleExit });
    const relay = new Running(relayArgs());
    await eventually('it has joined', () => relay.stderr.includes('joined Hostler'));
    const { pid } = await status();
    expect(await greet(1, '0.0.1')).not.toHaveProperty('refused');
    expect((await greet(0, '0.0.1')).refused).toBe('protocol');
    expect(isAlive(pid)).toBe(true);
    expect(await status()).not.toHaveProperty('upgradePending');
    expect((await greet(2, '99.0.0')).refused).toBe('protocol');
    await eventually('the old host has ended', () => !isAlive(pid));
    relay.child.stdin?.end();
    expect((await relay.closed).code).toBe(0);
    expect(existsSync(path.join(place.dataDir, 'stdio.sock'))).toBe(false);
  });
});

test('R1 if the data directory cannot be used, the process serves its client itself and says so once', async () => {
  place.configure({ mcpServers: { one: fixtureEntry() } });
  const args = ['up', '--stdio', '--config', place.config, '--data-dir', '/sys/hostler-test'];
  const relay = new Running(args);
  relay.child.stdin?.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n');
  await eventually('it answers', () => relay.stdout.includes('"id":1'));
  expect(relay.stderr.split('serves its client itself').length).toBe(2);
  relay.child.stdin?.end();
  expect((await relay.closed).code).toBe(0);
});

test('R1 a data directory that is a file is an error of its user, not a sandbox', async () => {
  place.configure({});
  const { code, stderr } = await new Running(['up', '--stdio', '--config', place.config, '--data-dir', place.config])
    .closed;
  expect([code, stderr]).toEqual([1, expect.stringContaining('EEXIST')]);
});
