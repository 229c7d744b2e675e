/** `call` and `tools` without a running Hostler: the servers they start, their exit codes, and no leftovers. */
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { isAlive } from '../is-alive.js';
import { fixtureEntry, Running, Workplace } from './hostler-process.js';

let place: Workplace;
let env: Record<string, string>;

/** A server that adds its process id to a file at each start. */
const marks = (name: string) => {
  const { command, args, env: own } = fixtureEntry() as { command: string; args: string[]; env: object };
  const script = `echo $$ >> '${path.join(place.folder, name)}'; exec "$0" "$@"`;
  return { command: 'sh', args: ['-c', script, command, ...args], env: own };
};
const pidsOf = (name: string): number[] => {
  const file = path.join(place.folder, name);
  return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n').map(Number) : [];
};

beforeEach(() => {
  place = new Workplace();
  env = { HOSTLER_DATA_DIR: place.dataDir, XDG_CONFIG_HOME: place.folder };
  mkdirSync(path.join(place.folder, 'hostler'));
  Object.assign(place, { config: path.join(place.folder, 'hostler', 'hostler.json') });
  place.configure({
    mcpServers: {
      one: { ...marks('one'), tools: { deny: ['exit'] } },
      eager: { ...marks('eager'), lazy: false, keepAlive: 0 },
      missing: { command: 'no-such-command-here' },
    },
  });
});
afterEach(() => place.remove());

const begin = (...args: string[]) => {
  const running = new Running(args, env, place.folder);
  running.child.stdin?.end();
  return running;
};
const hostler = (...args: string[]) => begin(...args).closed;
const isClean = () =>
  !existsSync(path.join(place.dataDir, 'control.sock')) && ![...pidsOf('one'), ...pidsOf('eager')].some(isAlive);

test('AC-E16 call starts the server that it needs and no other, prints the answer, and stops the server', async () => {
  expect(await hostler('call', 'one.echo', 'text=01234')).toEqual({ code: 0, stdout: '01234\n', stderr: '' });
  expect([pidsOf('one').length, pidsOf('eager'), isClean()]).toEqual([1, [], true]);
});

test('the exit codes equal those with a running Hostler, and nothing is left after a failure', async () => {
  const cases: [string[], number, RegExp][] = [
    [['one', 'fail'], 1, /^could not connect to database\n$/],
    [['one.add', 'a=2'], 2, /one\.add needs b/],
    [['one', 'exit'], 3, /tools\.deny of its server names it/],
    [['missing', 'echo', '{}'], 4, /was not found/],
  ];
  for (const [args, code, said] of cases) {
    const { code: ended, stdout, stderr } = await hostler('call', ...args);
    expect([args, ended, stdout + stderr]).toEqual([args, code, expect.stringMatching(said)]);
    expect(isClean()).toBe(true);
  }
});

test('the error of a server that cannot start names neither a later try nor a log, which only a running Hostler has', async () => {
  const crash = { command: process.execPath, args: ['-e', 'throw new Error("no database")'] };
  place.configure({ mcpServers: { crash, missing: { command: 'no-such-command-here' } } });
  for (const [server, said] of [
    ['crash', /exited with code 1; .*no database.*\[server_parked\]\n +fix the cause and repeat the command/],
    ['missing', /was not found on the server's PATH \[server_parked\]\n +install it/],
  ] as const) {
    const { code, stderr } = await hostler('call', server, 'echo', '{}');
    expect([code, stderr]).toEqual([4, expect.stringMatching(said)]);
    expect(stderr).not.toMatch(/next try|reload|hostler logs \w/);
    const { stdout } = await hostler('tools', server);
    expect(stdout).toMatch(/not known: server '\w+'.*(?:exited with code 1|was not found)/);
    expect(stdout).not.toMatch(/next try|reload|hostler logs \w/);
  }
});

test('tools starts servers that were never listed, once; hostler up then knows the tools', async () => {
  const first = await hostler('tools', 'one');
  expect([first.code, first.stdout]).toEqual([0, expect.stringMatching(/\none +echo [\s\S]*\n11 tools of 1 server/)]);
  expect([pidsOf('one').length, pidsOf('eager'), isClean()]).toEqual([1, [], true]);
  const second = await hostler('tools', '--json');
  const { tools, failed } = JSON.parse(second.stdout) as Record<'tools' | 'failed', { server: string }[]>;
  expect([...new Set(tools.map(({ server }) => server))]).toEqual(['eager', 'one']);
  expect(failed.map(({ server }) => server)).toContain('missing');
  expect([pidsOf('one').length, pidsOf('eager').length, isClean()]).toEqual([1, 1, true]);
  await place.up().ready();
  expect((await hostler('tools', 'one')).stdout).toBe(first.stdout);
  expect(pidsOf('one').length).toBe(1);
});

test('tools that were disabled with a running Hostler stay disabled', async () => {
  const up = place.up();
  await up.ready();
  expect((await hostler('disable', 'one')).code).toBe(0);
  up.child.kill('SIGTERM');
  await up.closed;
  const { code, stderr } = await hostler('call', 'one.echo', 'text=x');
  expect([code, stderr]).toEqual([3, expect.stringContaining('hostler enable one')]);
});

test('a hostler.json of the working folder that was never confirmed is not run', async () => {
  const folder = path.join(place.folder, 'cloned');
  mkdirSync(folder);
  Object.assign(place, { config: path.join(folder, 'hostler.json') });
  place.configure({ mcpServers: { one: marks('one') } });
  const inFolder = (...args: string[]) => {
    const running = new Running(args, env, folder);
    running.child.stdin?.end();
    return running.closed;
  };
  for (const args of [['call', 'one.echo', 'text=x'], ['tools']])
    expect(await inFolder(...args)).toMatchObject({
      code: 3,
      stdout: '',
      stderr: expect.stringMatching(/never confirmed on this machine[\s\S]*hostler trust/),
    });
  expect(pidsOf('one')).toEqual([]);
  expect((await inFolder('trust', '--yes')).code).toBe(0);
  expect(await inFolder('call', 'one.echo', 'text=x')).toMatchObject({ code: 0, stdout: 'x\n' });
});

test('SIGTERM while the server starts stops it, then ends the command', async () => {
  const running = begin('call', 'one', 'sleep', '{"ms":60000}');
  await eventually('the server is started', () => pidsOf('one').length > 0);
  running.child.kill('SIGTERM');
  await running.closed;
  expect([running.child.signalCode, running.stderr, isClean()]).toEqual(['SIGTERM', '', true]);
});

test('simultaneous commands run one after the other', async () => {
  const ended = await Promise.all(['a', 'b', 'c'].map((text) => hostler('call', 'one.echo', `text=${text}`)));
  expect(ended.map(({ code, stdout, stderr }) => [code, stdout, stderr])).toEqual([
    [0, 'a\n', ''],
    [0, 'b\n', ''],
    [0, 'c\n', ''],
  ]);
  expect([pidsOf('one').length, isClean()]).toEqual([3, true]);
});

test('other commands are refused while a command uses the data directory; Ctrl-C during its call ends the server too', async () => {
  // Listed before, so the call is sent as soon as the server is ready.
  await hostler('tools', 'one');
  const running = begin('call', 'one', 'sleep', '{"ms":60000}');
  await eventually('the server runs', () => pidsOf('one').length > 1);
  const { code, stderr } = await hostler('status');
  expect([code, stderr]).toEqual([4, expect.stringContaining(`pid ${running.child.pid}) uses this data directory`)]);
  running.child.kill('SIGINT');
  await running.closed;
  expect([running.child.signalCode, running.stderr, isClean()]).toEqual(['SIGINT', '', true]);
});

test('AC-E16 a running Hostler is used, and its server keeps running', async () => {
  await place.up().ready();
  expect(await hostler('call', 'one.echo', 'text=x')).toMatchObject({ code: 0, stdout: 'x\n' });
  expect(await hostler('call', 'one.echo', 'text=y')).toMatchObject({ code: 0, stdout: 'y\n' });
  const [pid = 0, ...others] = pidsOf('one');
  expect([isAlive(pid), others]).toEqual([true, []]);
});

test('without a configuration the error lists the places that were searched', async () => {
  env.XDG_CONFIG_HOME = path.join(place.folder, 'empty');
  const { code, stderr } = await hostler('call', 'one.echo', 'text=x');
  expect([code, stderr]).toEqual([1, expect.stringContaining('no configuration found: looked for')]);
});

test('--config names another configuration: its running Hostler is used, otherwise its servers are started', async () => {
  Object.assign(place, { config: path.join(place.folder, 'mcp.json') });
  place.configure({ mcpServers: { other: marks('other') } });
  const named = ['--config', place.config];
  const own = { ...env, HOSTLER_DATA_DIR: '', XDG_DATA_HOME: path.join(place.folder, 'share') };
  const run = (...args: string[]) => new Running([...args, ...named], own, place.folder);
  expect(await run('call', 'other.echo', 'text=x').closed).toEqual({ code: 0, stdout: 'x\n', stderr: '' });
  expect((await run('tools').closed).stdout).toContain('12 tools of 1 server');
  const up = run('up', '--json', '--port=0');
  place.running.push(up);
  const { pid } = await up.ready();
  expect(JSON.parse((await run('status', '--json').closed).stdout)).toMatchObject({ pid });
  expect(await run('call', 'other.echo', 'text=y').closed).toMatchObject({ code: 0, stdout: 'y\n' });
  expect(await run('stop', 'other').closed).toMatchObject({ code: 0, stdout: 'other: stopped\n' });
});
