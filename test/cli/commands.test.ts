/**
 * The commands that use a running Hostler, as processes: their output and their exit codes.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { StatusRow } from '../../src/host/status.js';
import { eventually } from '../eventually.js';
import { fixtureEntry, Workplace } from './hostler-process.js';

const place = new Workplace();
const hostler = (command: string, ...args: string[]) => place.hostler(command, ...args);

/** Writes to stderr before it serves. */
const shout = 'printf "and %s\\n" "$PLAIN" >&2; printf "my token=abcdef123456 \\033[2J\\n" >&2';
const quiet = fixtureEntry() as { command: string; args: string[]; env: Record<string, string> };

/** Answers `initialize`, and every other request with an error. */
const noList = `let rest = '';
process.stdin.on('data', (chunk) => {
  const lines = (rest + chunk).split('\\n');
  rest = lines.pop();
  for (const { id, method } of lines.map((line) => JSON.parse(line))) {
    const info = { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'x', version: '1' } };
    const body = method === 'initialize' ? { result: info } : { error: { code: -32603, message: 'no database' } };
    if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, ...body }));
  }
});`;

/** Fails like an incompletely installed program. */
const crash = `console.error('starting'); throw new Error('Cannot find module left-pad');`;

beforeAll(async () => {
  process.env.HOSTLER_TEST_VALUE = 'by-no-name-a-secret';
  place.configure({
    mcpServers: {
      fixture: { ...fixtureEntry(), tools: { deny: ['exit'] } },
      loud: {
        command: 'sh',
        args: ['-c', `${shout}; exec "$0" "$@"`, quiet.command, ...quiet.args],
        env: { ...quiet.env, PLAIN: '$' + '{env:HOSTLER_TEST_VALUE}' },
      },
      missing: { command: 'no-such-command-here' },
      off: { ...fixtureEntry(), enabled: false },
      nolist: { command: process.execPath, args: ['-e', noList] },
      crashing: { command: process.execPath, args: ['-e', crash], restart: { max: 0 } },
      wrong: { comand: 'x' },
      renaming: { ...fixtureEntry(), tools: { rename: { echo: 'say' } } },
    },
    roles: { reader: { allow: ['fixture/echo'] } },
    budgets: { roles: { reader: { calls: 5, window: '1m' } } },
  });
  await place.up().ready();
});
afterAll(() => place.remove());

describe('exit codes', () => {
  test.each<[string, string[], number, RegExp]>([
    ['0: done', ['fixture', 'echo', '{"text":"hello"}'], 0, /^hello\n$/],
    ['0: arguments one by one', ['fixture', 'add', '--arg', 'a=2', '--arg', 'b=3'], 0, /^5\n$/],
    ['1: the tool failed', ['fixture', 'fail'], 1, /^could not connect to database\n$/],
    ['1: no such server', ['nobody', 'echo'], 1, /there are: crashing, fixture, loud/],
    ['1: it took too long', ['fixture', 'sleep', '{"ms":60000}', '--timeout', '200ms'], 1, /no answer by the deadline/],
    ['2: wrong usage', [], 2, /usage: hostler call/],
    ['3: refused by policy', ['fixture', 'exit'], 3, /tools\.deny of its server names it/],
    ['4: parked', ['missing', 'echo'], 4, /was not found/],
    ['4: disabled', ['off', 'echo'], 4, /is disabled/],
  ])('%s', async (_name, args, code, said) => {
    if (args[0] === 'missing')
      await eventually('it is parked', async () => (await hostler('status')).stdout.includes('parked'));
    const { code: ended, stdout, stderr } = await hostler('call', ...args);
    expect([ended, stdout + stderr]).toEqual([code, expect.stringMatching(said)]);
  });

  test('1: no Hostler is running, and the hint shows how to start one', async () => {
    const { code, stderr } = await hostler('status', '--data-dir', place.folder);
    expect([code, stderr]).toEqual([1, expect.stringContaining('hostler up')]);
  });
});

test('a result as the server wrote it, however long', async () => {
  const { stdout } = await hostler('call', 'fixture', 'big', '{"bytes":3000000}', '--json');
  const { content } = JSON.parse(stdout) as { content: { text: string }[] };
  expect(content[0]?.text.length).toBe(3_000_000);
});

test('start, stop and reload print the state of the server afterwards', async () => {
  expect(await hostler('stop', 'fixture')).toMatchObject({ code: 0, stdout: 'fixture: stopped\n' });
  expect((await hostler('call', 'fixture', 'echo', '{"text":"x"}')).code).toBe(4);
  expect(await hostler('start', 'fixture')).toMatchObject({ code: 0, stdout: 'fixture: ready\n' });
  expect(await hostler('reload', 'fixture')).toMatchObject({ code: 0, stdout: 'fixture: asleep\n' });
  expect((await hostler('start', 'nobody')).code).toBe(1);
});

test('tools of one server, without starting it', async () => {
  await hostler('call', 'fixture', 'echo', '{"text":"x"}');
  const { code, stdout } = await hostler('tools', '--server', 'fixture');
  expect(code).toBe(0);
  expect(stdout).toMatch(/^SERVER +TOOL +SIZE +DESCRIPTION\nfixture +echo +\d+ B .*\nfixture +add +\d+ B/);
  expect(stdout).toMatch(/\n11 tools of 1 server, [\d.]+ kB: about [\d,]+ tokens\n$/);
  const { stdout: signatures } = await hostler('tools', 'fixture', '--signatures');
  expect(signatures).toMatch(/^fixture\.echo\(text: string\)\nfixture\.add\(a: number, b: number\)\n/);
  const unlisted = (await hostler('tools', 'nolist', '--signatures')).stdout;
  expect(unlisted).toMatch(/^nolist: not known: .*no database/);
  // No caller gets a tool that the operator removed.
  expect(stdout).not.toContain('exit');
  const { stdout: json } = await hostler('tools', '--server', 'fixture', '--json');
  const { tools, failed } = JSON.parse(json) as { tools: { server: string }[]; failed: unknown[] };
  expect([tools.map(({ server }) => server), failed]).toEqual([Array(11).fill('fixture'), []]);
});

describe('AC-E16 call, as people type it', () => {
  test.each<[string, string[], number, RegExp]>([
    ['by the schema', ['fixture.echo', 'text=01234'], 0, /^01234\n$/],
    ['with JSON values', ['fixture.add', 'a:=2', 'b=3'], 0, /^5\n$/],
    ['with a slash', ['fixture/add', 'a=2', 'b=3'], 0, /^5\n$/],
    [
      'a file',
      ['fixture.echo', `text=@${new URL('../fixtures/real-servers.ts', import.meta.url).pathname}`],
      0,
      /import/,
    ],
    ['after two dashes', ['fixture.echo', '--', 'text=--x'], 0, /^--x\n$/],
    ['a wrong type', ['fixture.add', 'a=two', 'b=3'], 2, /a: 'two' is not a number \[invalid_spec\]/],
    [
      'a missing parameter',
      ['fixture.add', 'a=2'],
      2,
      /needs b .*\n +add\(a: number, b: number\)\n +hostler call fixture\.add a=1\.5 b=1\.5\n$/,
    ],
    ['a mistyped tool', ['fixture.ehco', 'text=x'], 1, /no tool 'ehco' .*\n +did you mean echo\?/],
    ['a mistyped server', ['fixtrue.echo', 'text=x'], 1, /no server 'fixtrue' .*\n +did you mean fixture\?/],
    ['no tool', ['fixture'], 2, /the tool of 'fixture' is missing/],
  ])('%s', async (_name, args, code, said) => {
    const { code: ended, stdout, stderr } = await hostler('call', ...args);
    expect([ended, stdout + stderr]).toEqual([code, expect.stringMatching(said)]);
  });

  test('JSON on stdin is sent with all digits', async () => {
    const running = place.follow('call', 'fixture', 'echo', '-');
    running.child.stdin?.end('{"text":"12345678901234567890"}');
    expect(await running.closed).toMatchObject({ code: 0, stdout: '12345678901234567890\n' });
  });
});

describe('why', () => {
  const why = async (...args: string[]) =>
    JSON.parse((await hostler('why', ...args, '--json')).stdout) as Record<string, never>;

  test('by role: visible or hidden, the deciding rule, and the remaining budget', async () => {
    const seen = await why('fixture/echo', '--role', 'reader');
    expect(seen).toMatchObject({
      visible: true,
      rule: "a rule of role 'reader' allows it",
      budget: { calls: 5, left: 5 },
      pin: { blocks: false },
    });
    const hidden = await why('fixture/add', '--role', 'reader');
    expect(hidden).toMatchObject({ visible: false, call: { outcome: 'refused', code: 'denied' }, wouldStart: false });
  });

  test('as text', async () => {
    const { stdout } = await hostler('why', 'fixture/exit');
    expect(stdout).toMatch(/^fixture\/exit +for the operator\nhidden +server 'fixture': .*tools\.deny/);
    expect(stdout).toMatch(/\na call now +is refused: /);
  });
});

describe('logs', () => {
  test('print events and the text of the server, without secrets and terminal codes', async () => {
    const follow = place.follow('logs', 'loud', '--follow');
    await hostler('start', 'loud');
    const heard = await eventually('its words', () => follow.stdout.includes('stderr') && follow.stdout);
    expect(heard).toContain('my token=[REDACTED]');
    expect(heard).not.toContain('abcdef123456');
    // Filled in from the environment, with any name of the variable.
    expect(heard).toContain('and [REDACTED]');
    expect(heard).not.toContain('by-no-name');
    expect(heard).not.toContain('\u001b');
    follow.child.kill('SIGINT');
    expect((await follow.closed).code).toBe(0);
    const { code, stdout } = await hostler('logs', 'loud');
    expect([code, stdout]).toEqual([0, expect.stringContaining('hostler | ')]);
  });

  test('--follow ends when the reader of its output exits', async () => {
    const follow = place.follow('logs', '--follow');
    await eventually('the first lines', () => follow.stdout !== '');
    follow.child.stdout?.destroy();
    await hostler('reload', 'renaming');
    await hostler('start', 'renaming');
    expect(await follow.closed).toMatchObject({ code: 0, stderr: '' });
  });

  test.each([
    ['3d', 0],
    ['1.5h', 0],
    ['2026-11-19T08:00', 0],
    ['yesterday', 2],
    ['60', 2],
    ['2d4h', 2],
  ])('--since %s: exit code %i', async (since, code) => {
    const ended = await hostler('logs', '--since', since, '--tail', '1');
    expect([ended.code, ended.stderr.includes('like 30s, 10m, 2h or 3d')]).toEqual([code, code === 2]);
  });

  test('of an unknown server', async () => {
    expect((await hostler('logs', 'nobody')).code).toBe(1);
  });
});

describe('status', () => {
  test('as JSON', async () => {
    const { version, servers, dataDir } = JSON.parse((await hostler('status', '--json')).stdout) as {
      version: string;
      servers: StatusRow[];
      dataDir: string;
    };
    expect([typeof version, dataDir]).toEqual(['string', place.dataDir]);
    const names = ['fixture', 'loud', 'missing', 'off', 'nolist', 'crashing', 'renaming', 'wrong'];
    expect(servers.map(({ name }) => name).sort()).toEqual(names.sort());
  });

  test('as text, once and with --watch', async () => {
    const { stdout } = await hostler('status');
    expect(stdout).toMatch(/\nSERVER +STATE +FOR +TOOLS +CALLS +PID +NOTE\n/);
    expect(stdout).toMatch(/\noff +disabled /);
    expect(stdout).toMatch(/\nwrong +refused .*needs a command.*comand/);
    expect(stdout).toMatch(/\n8 servers: .*1 disabled.*; \d+ tools; [1-9]\d* calls\n/);
    const watch = place.follow('status', '--watch');
    const drawn = () => watch.stdout.split('SERVER').length - 1;
    await eventually('the first picture', () => drawn() > 0);
    await hostler('stop', 'fixture');
    await eventually('the change', () => /\nfixture +stopped/.test(watch.stdout));
    watch.child.kill('SIGINT');
    expect((await watch.closed).code).toBe(0);
  });
});

describe('the reason why a server cannot be used is shown in several commands', () => {
  const shown = async (...argv: [string, ...string[]]) => (await hostler(...argv)).stdout;

  test('a list of tools that fails: status, why, doctor', async () => {
    const failed = /no tools: .*tools\/list.*no database/;
    await eventually('its list failed', async () => failed.test(await shown('status')));
    expect(await shown('status', 'nolist')).toMatch(failed);
    expect(await shown('why', 'nolist')).toMatch(/\ntools +.*no database/);
    expect(await shown('doctor')).toMatch(/\nbroken {2}server nolist: .*no database.*\n {8}hostler why nolist/);
  });

  test('a crash: the error with its place, and the command that shows the rest', async () => {
    const told = /crashing +(?:parked|restarting) .*Error: Cannot find module left-pad at \[eval\]:1/;
    await eventually('it crashed', async () => told.test(await shown('status')));
    const { stderr } = await hostler('call', 'crashing', 'any');
    expect(stderr).toContain('hostler logs crashing');
    expect(await shown('logs', 'crashing')).toMatch(/stderr {2}\| starting\n/);
  });

  test('calls are counted', async () => {
    const calls = async () =>
      (JSON.parse(await shown('status', 'renaming', '--json')) as { servers: StatusRow[] }).servers[0]?.calls ?? -1;
    const before = await calls();
    await hostler('call', 'renaming.say', 'text=1');
    await hostler('call', 'renaming.echo', 'text=2');
    expect((await calls()) - before).toBe(2);
  });

  test('why knows a renamed tool and one that does not exist', async () => {
    expect(await shown('why', 'renaming/say')).toMatch(/^renaming\/echo +for the operator\nclients see +say\nvisible/);
    expect(await shown('why', 'renaming/ehco')).toMatch(
      /\nhidden .*\n[\s\S]*a call now +is refused: .*did you mean echo\?/,
    );
  });

  test('a refused entry, with the reason and what to do', async () => {
    expect(await shown('status', 'wrong')).toMatch(/state +refused\n[\s\S]*note +.*comand[\s\S]*to do /);
    expect(await shown('why', 'wrong')).toMatch(/\nstate +refused for /);
  });

  test('doctor checks the configuration of the running Hostler, from any folder', async () => {
    expect(await shown('doctor')).toMatch(/\nok {6}server fixture: command/);
  });
});

describe('doctor', () => {
  test('finds problems, says what to do, and exits with 1', async () => {
    const { code, stdout } = await hostler('doctor', '--config', place.config);
    expect(code).toBe(1);
    expect(stdout).toMatch(/\nok {6}server fixture: command \//);
    expect(stdout).toMatch(/\nbroken {2}server missing: .*\n {8}install it, /);
    expect(stdout).toMatch(/\nok {6}control socket: a Hostler is running \(pid \d+\)\n/);
    expect(stdout).toMatch(/\na check failed\n$/);
  });

  test('shows a damaged database that was set aside', async () => {
    const other = new Workplace();
    other.configure({ mcpServers: { fixture: fixtureEntry() }, listen: { port: 0 } });
    mkdirSync(path.join(other.dataDir, 'broker'), { recursive: true, mode: 0o700 });
    for (const name of ['state.db.unusable', 'broker/calls.db.unusable', 'broker/calls.db.unusable-wal'])
      writeFileSync(path.join(other.dataDir, name), '');
    const { code, stdout } = await other.hostler('doctor', '--config', other.config);
    await other.remove();
    expect(code).toBe(0);
    expect(stdout).toMatch(/\nnote {4}state: a damaged database was set aside: .*\n {8}.*state\.db\.unusable\n/);
    expect(stdout).toMatch(/\nnote {4}log of calls: a damaged .* uncertain\n {8}.*calls\.db\.unusable\n/);
  });

  test('names a key that cannot be used', async () => {
    const other = new Workplace();
    other.configure({ mcpServers: {}, listen: { port: 0 }, keys: { ann: { hash: 'sha1:00' } } });
    const { code, stdout } = await other.hostler('doctor', '--config', other.config);
    await other.remove();
    expect(code).toBe(1);
    expect(stdout).toMatch(/\nbroken {2}configuration: \S+:\d+:\d+: keys\.ann\.hash: .*\n {8}make one with: /);
  });

  test('checks the port that the configuration names, even if it is the default', async () => {
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
    const { port } = taken.address() as { port: number };
    const other = new Workplace();
    mkdirSync(other.dataDir, { mode: 0o700 });
    writeFileSync(path.join(other.dataDir, 'port'), String(port));
    const checked = async (config: object) => {
      other.configure(config);
      return (await other.hostler('doctor', '--config', other.config)).stdout;
    };
    const named = await checked({ listen: { port: 8383 } });
    const remembered = await checked({});
    await other.remove();
    taken.close();
    expect(named).toContain('port: 8383 of 127.0.0.1');
    expect(remembered).toContain(`port: ${port} of 127.0.0.1 is already in use; hostler up takes a free one`);
  });

  test('reports no problem if there is none', async () => {
    const other = new Workplace();
    other.configure({ mcpServers: { fixture: fixtureEntry() }, listen: { port: 0 } });
    const { code, stdout } = await other.hostler('doctor', '--config', other.config, '--json');
    await other.remove();
    const { ok, findings } = JSON.parse(stdout) as { ok: boolean; findings: { check: string; level: string }[] };
    expect([code, ok]).toEqual([0, true]);
    expect(findings.map(({ check }) => check)).toEqual([
      ...['node', 'configuration', 'server fixture', 'bubblewrap', 'data directory', 'control socket', 'port'],
    ]);
  });
});
