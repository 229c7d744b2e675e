/** Two projects at once, without an option, and the commands that find the right one from any folder. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { type Ready, Running } from './hostler-process.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-two-'));
const running: Running[] = [];
afterAll(async () => {
  for (const { child, closed } of running) {
    child.kill('SIGTERM');
    await closed;
  }
  rmSync(folder, { recursive: true, force: true });
});

const env = { XDG_DATA_HOME: path.join(folder, 'share'), HOSTLER_DATA_DIR: '' };
const projectOf = (name: string) => {
  const project = path.join(folder, name);
  mkdirSync(project);
  writeFileSync(path.join(project, 'hostler.json'), '{"mcpServers": {}}');
  return project;
};
const up = (project: string) => {
  const started = new Running(['up', '--config', path.join(project, 'hostler.json'), '--json'], env, project);
  running.push(started);
  return started;
};
const status = async (cwd: string) => {
  const { code, stdout, stderr } = await new Running(['status', '--json'], env, cwd).closed;
  return { code, stderr, pid: code === 0 ? (JSON.parse(stdout) as Ready).pid : undefined };
};

test('R5 two projects run at once, each with its data and port, and commands find them from any folder', async () => {
  const [one, two, elsewhere] = ['one', 'two', 'elsewhere'].map((name, at) =>
    at < 2 ? projectOf(name) : path.join(folder, name),
  ) as [string, string, string];
  mkdirSync(elsewhere);
  const [first, second] = [up(one), up(two)];
  const [readyOne, readyTwo] = [await first.ready(), await second.ready()];
  expect(readyOne.dataDir).not.toBe(readyTwo.dataDir);
  expect(readyOne.url).not.toBe(readyTwo.url);

  expect([(await status(one)).pid, (await status(two)).pid]).toEqual([readyOne.pid, readyTwo.pid]);
  const asked = await status(elsewhere);
  expect(asked).toMatchObject({ code: 2, stderr: expect.stringContaining('2 Hostlers are running') });
  const alone = await new Running([], env, elsewhere).closed;
  expect(alone).toMatchObject({ code: 0, stdout: expect.stringContaining('2 Hostlers are running') });
  for (const project of [one, two])
    for (const text of [asked.stderr, alone.stdout]) expect(text).toContain(path.join(project, 'hostler.json'));

  for (const project of [one, two])
    expect(alone.stdout).toContain(
      `\n  hostler status --config ${path.join(project, 'hostler.json')}\n      show its servers\n`,
    );

  // The project with a stored port keeps it, because clients have its URL.
  const [kept, other] = readyOne.url.includes(':8383/') ? [second, first] : [first, second];
  const { url, pid } = kept === second ? readyTwo : readyOne;
  kept.child.kill('SIGKILL');
  await kept.closed;
  const left = kept === second ? readyOne : readyTwo;
  expect((await status(elsewhere)).pid).toBe(left.pid);
  const [ended, runs] = (kept === second ? [two, one] : [one, two]).map((project) =>
    path.join(project, 'hostler.json'),
  );
  const here = (...args: string[]) => new Running(args, env, path.dirname(String(ended))).closed;
  expect(await status(path.dirname(String(ended)))).toEqual({
    ...{ code: 0, pid: left.pid },
    stderr: `hostler: no Hostler is running for ${ended}; this is the Hostler of ${runs}\n`,
  });
  for (const args of [['down'], ['restart'], ['disable', 'x'], ['stop', 'x'], ['approve']]) {
    const refused = await here(...args);
    expect([args, refused.code, refused.stderr]).toEqual([args, 2, expect.stringContaining(String(runs))]);
    expect(refused.stderr).toContain(`no Hostler is running for ${ended};`);
  }
  // Not confirmed, so the servers of this folder's configuration are not started.
  for (const args of [['tools'], ['call', 'x.y']])
    expect(await here(...args)).toMatchObject({ code: 3, stderr: expect.stringContaining(String(ended)) });
  writeFileSync(String(ended), '{"mcpServers": ');
  const checked = await here('doctor');
  expect([checked.code, checked.stdout]).toEqual([1, expect.stringContaining(String(ended))]);
  writeFileSync(String(ended), '{"mcpServers": {}}');
  expect((await new Running([], env, elsewhere).closed).stdout).toContain(`(pid ${left.pid})`);
  const keys = await new Running(['key', 'list'], env, elsewhere).closed;
  expect(keys).toMatchObject({ code: 1, stderr: expect.stringContaining('the Hostler that is running uses') });
  expect(keys.stderr).toContain(path.join(kept === second ? one : two, 'hostler.json'));
  const again = await up(kept === second ? two : one).ready();
  expect([again.url, again.pid === pid]).toEqual([url, false]);

  other.child.kill('SIGTERM');
  await other.closed;
  await eventually('only one is left', async () => (await status(elsewhere)).pid === again.pid);
});
