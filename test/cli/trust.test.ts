/** A `hostler.json` in the working folder, as in a foreign repository: its effects before it is confirmed. */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { isAlive } from '../is-alive.js';
import { Running, Workplace } from './hostler-process.js';

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
const server = fileURLToPath(new URL('../../bench/twenty-tools.pl', import.meta.url));
const place = new Workplace();
const env = { HOSTLER_DATA_DIR: place.dataDir, XDG_CONFIG_HOME: path.join(place.folder, 'account') };
afterAll(() => place.remove());

/** A server that writes its process id into a file when it is started. */
const marker = (name: string) => path.join(place.folder, name);
const marks = (name: string) => ({
  command: 'sh',
  args: ['-c', `echo $$ > '${marker(name)}'; exec perl '${server}'`],
  lazy: false,
  keepAlive: 0,
});
const pidOf = (name: string) =>
  eventually(
    `${name} is started`,
    () => existsSync(marker(name)) && (Number(readFileSync(marker(name), 'utf8')) || false),
  );

function hostler(...args: string[]) {
  const running = new Running(args, env, place.folder);
  running.child.stdin?.end();
  return running.closed;
}

test('E8 up and up --stdio run nothing from a found file before it is confirmed', async () => {
  place.configure({ mcpServers: { evil: marks('evil') }, broker: { listen: { port: 0 } } });
  const [up, stdio] = await Promise.all([hostler('up', '--port=0'), hostler('up', '--stdio')]);
  expect([up.code, up.stderr]).toEqual([
    3,
    expect.stringMatching(/never confirmed on this machine[\s\S]*hostler trust/),
  ]);
  expect(stdio).toMatchObject({ code: 1, stderr: expect.stringContaining('the working folder is not searched') });
  expect(existsSync(marker('evil'))).toBe(false);
});

test('E8 a terminal asks for confirmation; then a changed command waits for hostler trust, and other changes take effect', async () => {
  place.configure({ mcpServers: { a: marks('first') } });
  writeFileSync(marker('run'), `exec '${process.execPath}' '${main}' up --port=0 --json\n`);
  const up = spawn('script', ['-qfec', `sh '${marker('run')}'`, '/dev/null'], {
    cwd: place.folder,
    env: { ...process.env, ...env },
  });
  let shown = '';
  up.stdout.on('data', (chunk) => (shown += chunk));
  await eventually('the question', () => shown.includes('Use this configuration? [y/N]'));
  expect([shown.includes('exec perl'), existsSync(marker('first'))]).toEqual([true, false]);
  up.stdin.write('y\n');
  const first = await pidOf('first');
  await eventually('it serves', () => shown.includes('"ready":true'));

  place.configure({ mcpServers: { a: marks('second'), b: marks('third') }, roles: { guest: { allow: ['none/*'] } } });
  const waits = 'waits for hostler trust: mcpServers.a, mcpServers.b';
  await eventually('it waits', () => shown.includes(waits));
  expect(shown).toContain('roles.guest.allow.0');
  expect((await hostler('status')).stdout).toContain(waits);
  expect([isAlive(first), existsSync(marker('second')), existsSync(marker('third'))]).toEqual([true, false, false]);

  expect(await hostler('trust', '--yes')).toMatchObject({ code: 0, stdout: expect.stringContaining('2 changed') });
  await pidOf('second');
  const third = await pidOf('third');
  await eventually('the old one is gone', () => !isAlive(first));
  up.stdin.write('\u0003');
  await eventually('it ends', () => up.exitCode !== null && !isAlive(third));
});
