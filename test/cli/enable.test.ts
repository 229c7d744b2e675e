/** `hostler enable|disable`, `logs` of all servers, `help` and `version`, as processes. */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { fixtureEntry, Running, Workplace } from './hostler-process.js';

const place = new Workplace();
const hostler = (command: string, ...args: string[]) => place.hostler(command, ...args);
let text = '';

beforeAll(async () => {
  place.configure({ mcpServers: { one: fixtureEntry(), two: fixtureEntry() } });
  text = readFileSync(place.config, 'utf8');
  await place.up().ready();
});
afterAll(() => place.remove());

test('a disabled tool is neither listed nor called until it is enabled, also after a restart', async () => {
  expect(await hostler('disable', 'one/echo')).toMatchObject({ code: 0, stdout: 'one/echo: disabled\n' });
  const refused = await hostler('call', 'one.echo', 'text=x');
  expect([refused.code, refused.stderr]).toEqual([3, expect.stringContaining('hostler enable one/echo puts it back')]);
  expect((await hostler('tools', 'one', '--signatures')).stdout).not.toContain('one.echo(');
  expect((await hostler('call', 'two.echo', 'text=x')).code).toBe(0);
  const first = place.running[0];
  first?.child.kill('SIGTERM');
  await first?.closed;
  await place.up().ready();
  expect((await hostler('call', 'one.echo', 'text=x')).code).toBe(3);
  expect((await hostler('status')).stdout).toMatch(/\none .*1 tool disabled by/);
  expect(await hostler('enable', 'one/echo')).toMatchObject({ code: 0, stdout: 'one/echo: enabled\n' });
  expect((await hostler('call', 'one.echo', 'text=x')).code).toBe(0);
  expect(readFileSync(place.config, 'utf8')).toBe(text);
});

test('a disabled server is stopped and refuses calls and start until it is enabled', async () => {
  expect((await hostler('disable', 'two')).code).toBe(0);
  expect((await hostler('call', 'two', 'echo', '{"text":"x"}')).code).toBe(3);
  expect((await hostler('start', 'two')).stderr).toContain('hostler enable two');
  expect((await hostler('status')).stdout).toMatch(/\ntwo +stopped .*disabled: hostler enable two/);
  expect((await hostler('enable', 'two')).code).toBe(0);
  expect((await hostler('call', 'two.echo', 'text=x')).code).toBe(0);
});

test('a tool of a disabled server is not reported as enabled', async () => {
  for (const about of ['two', 'two/echo']) expect((await hostler('disable', about)).code).toBe(0);
  const still = await hostler('enable', 'two/echo');
  expect([still.code, still.stdout]).toEqual([
    1,
    'two/echo: still disabled, because its server is; run: hostler enable two\n',
  ]);
  const { stdout } = await hostler('enable', 'two/echo', '--json');
  expect(JSON.parse(stdout)).toMatchObject({ server: 'two', tool: 'echo', isEnabled: false });
  expect(await hostler('enable', 'two')).toMatchObject({ code: 0, stdout: 'two: enabled\n' });
  expect((await hostler('call', 'two.echo', 'text=x')).code).toBe(0);
});

test('a server that is disabled by its entry is not reported as enabled', async () => {
  const off = { off: { ...fixtureEntry(), enabled: false }, bad: { command: 'x', args: 7 } };
  place.configure({ ...JSON.parse(text), mcpServers: { ...JSON.parse(text).mcpServers, ...off } });
  await eventually('the edit is in effect', async () => (await hostler('status')).stdout.includes('\nbad '));
  const still = await hostler('enable', 'off');
  expect([still.code, still.stdout]).toEqual([1, `off: still disabled by its entry in ${place.config}\n`]);
  const { code, stdout } = await hostler('enable', 'bad', '--json');
  expect([code, JSON.parse(stdout)]).toMatchObject([1, { server: 'bad', isEnabled: false }]);
  expect((await hostler('enable', 'bad')).stdout).toContain(`bad: still refused by its entry in ${place.config}: `);
  place.configure(text);
  await eventually('the edit is undone', async () => !(await hostler('status')).stdout.includes('\nbad '));
});

test('a save of other settings is not reported, but remarks about commands in one text are', async () => {
  const up = place.running.at(-1) as Running;
  const inEffect = () => up.stderr.match(/the edited configuration is in effect/g)?.length ?? 0;
  const before = inEffect();
  const config = JSON.parse(text);
  for (const startups of [1, 2]) {
    place.configure({ ...config, startups });
    // Two commands take longer than the watch waits.
    for (let n = 0; n < 2; n++) await hostler('status');
  }
  config.mcpServers.split = { command: `${process.execPath} -e 1` };
  place.configure({ ...config, startups: 3 });
  await eventually('a change of a server is reported', () => up.stderr.includes('is split: the program is'));
  expect(up.stderr).toMatch(/ warn +.*is split: the program is/);
  await eventually('the edit is in effect', () => inEffect() > before);
  // The first save has a remark about the unknown key.
  expect(inEffect() - before).toBeLessThanOrEqual(2);
  place.configure(text);
  await eventually('the edit is undone', async () => !(await hostler('status')).stdout.includes('\nsplit '));
});

test('a mistyped tool is not disabled', async () => {
  const { code, stderr } = await hostler('disable', 'one/ehco');
  expect([code, stderr]).toEqual([1, expect.stringContaining('did you mean echo?')]);
});

test('logs of all servers, the last lines, and lines of a period', async () => {
  await eventually('both ran', async () =>
    /two [\s\S]*one /.test((await hostler('logs')).stdout.split('\n').reverse().join('\n')),
  );
  expect((await hostler('logs', '-n', '2')).stdout.trimEnd().split('\n')).toHaveLength(2);
  expect((await hostler('logs', '--since', '2030-01-01')).stdout.trim()).toBe('');
  expect((await hostler('logs', '--since', '1h')).stdout).toContain('starting → ready');
  expect((await hostler('logs', '--since', 'later')).code).toBe(2);
});

test('help and version need no running Hostler', async () => {
  const run = (...args: string[]) => new Running(args, { HOSTLER_DATA_DIR: `${place.folder}/none` }).closed;
  expect((await run('help', 'states')).stdout).toMatch(/^ {2}asleep +starts with its next call\n/);
  expect((await run('help', 'call')).stdout).toBe((await run('call', '-h')).stdout);
  expect(await run('help', 'statse')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('did you mean states?'),
  });
  expect((await run('-v')).stdout).toBe((await run('--version')).stdout);
  expect((await run('version')).stdout).toMatch(/^hostler \d.*, node \d.*; none is running\n$/);
});
