/**
 * A system without /proc, as macOS is: a host that is killed while it starts a server leaves nothing behind.
 * `NO_PROC_HOSTS` hosts are killed; test/long/no-proc.long.ts has more of them, and runs the other process tests in this way too.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/kernel/clock.js';
import { ChildProcesses } from '../../src/transports/stdio/child-processes.js';
import { psTable, runProgram } from '../../src/transports/stdio/process-table.js';
import { openStdio } from '../../src/transports/stdio/stdio-channel.js';
import { hasProc } from '../real-table.js';
import { carriers, fakes, stubServer, until } from './harness.js';

const compiled = fileURLToPath(new URL('../../dist', import.meta.url));
const hosts = Number(process.env.NO_PROC_HOSTS ?? 2);

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'hostler-no-proc-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** Kills a host at the first moment at which its server runs and the host either went on, or asked `ps` about it. */
async function killWhileStarting(name: string): Promise<{ instanceId: string; left: () => number[] }> {
  const place = path.join(folder, name);
  const stateDir = path.join(place, 'state');
  const psLog = path.join(place, 'ps.log');
  mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  writeFileSync(path.join(place, 'ps.delay'), '2');
  const script = path.join(fakes, 'no-proc.sh');
  const driver = [process.execPath, path.join(fakes, 'stdio-driver.mjs'), compiled, stateDir, 'one'];
  const host = spawn('unshare', ['--mount', 'sh', script, place, ...driver], {
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  const gone = once(host, 'exit');
  const journal = () => readdirSync(stateDir).find((each) => each.endsWith('.children'));
  await until(() => journal() !== undefined || host.exitCode !== null, 'the host announces its server');
  const file = journal() as string;
  const instanceId = path.basename(file, '.children');
  const left = () => carriers(instanceId);
  await until(() => left().length > 0, 'the server runs');
  const [server] = left() as [number];
  const askedAbout = () => existsSync(psLog) && readFileSync(psLog, 'utf8').includes(`-p ${server} `);
  const wroteDown = () => readFileSync(path.join(stateDir, file), 'utf8').includes('"started"');
  await until(() => askedAbout() || wroteDown(), 'the host goes on, or asks for its start time');
  host.kill('SIGKILL');
  await gone;
  return { instanceId, left };
}

test.runIf(hasProc)(
  `E19 without /proc, ${hosts} hosts killed while they start a server leave no server behind`,
  async () => {
    const killed = await Promise.all(Array.from({ length: hosts }, (_, i) => killWhileStarting(`host-${i}`)));
    const left = () => killed.flatMap((host) => host.left());
    await until(() => left().length === 0, 'the death watches have taken them down', 10_000).catch(() => {});
    const remaining = left();
    for (const pid of remaining) process.kill(pid, 'SIGKILL');
    expect(remaining).toHaveLength(0);
  },
);

test('E19 no program is run between the spawn of a server and its registration', async () => {
  const asked: string[] = [];
  const table = psTable((file) => {
    asked.push(file);
    return undefined;
  });
  const children = new ChildProcesses({ clock: systemClock, stateDir: folder, ambient: process.env, table });
  // The journal names its owner and the boot, once for each host.
  expect(asked.splice(0)).toEqual(['ps', 'sysctl', 'sysctl']);
  const spec = { server: 'stub', command: 'perl', args: [stubServer] };
  const channel = await openStdio(spec, { clock: systemClock, cleanText: String, children });
  expect(asked).toEqual([]);
  expect(readFileSync(path.join(folder, `${children.instanceId}.children`), 'utf8')).toContain('"started"');
  await channel.close();
  await children.closeAll();
  expect(carriers(children.instanceId)).toEqual([]);
});

test('E19 a program that is missing, fails or writes to stderr gives no result; one that exits with 1 and no output gives an empty result', () => {
  const sh = (script: string) => runProgram('/bin/sh', ['-c', script]);
  expect(runProgram('/nowhere/ps', [])).toBeUndefined();
  expect(sh('exit 2')).toBeUndefined();
  expect(sh('echo no /proc >&2; exit 1')).toBeUndefined();
  expect(sh('kill -9 $$')).toBeUndefined();
  expect(sh('exit 1')).toEqual([]);
  expect(sh('echo a; echo; echo b')).toEqual(['a', 'b']);
});
