/** S8: a sudden death of the host leaves nothing behind, and the clean-up affects no other process. */
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { appendFileSync, closeSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/kernel/clock.js';
import { WATCH_SCRIPT } from '../../src/transports/stdio/death-watch.js';
import { systemTable } from '../../src/transports/stdio/process-table.js';
import { reap } from '../../src/transports/stdio/reaper.js';
import { isAlive } from '../is-alive.js';
import { factsNow, hasProc, livingNow, procFolder } from '../real-table.js';
import { timeLimitMs } from '../tier.js';
import { carriers, fakes, until, useBench } from './harness.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const driverFile = path.join(fakes, 'stdio-driver.mjs');

/** The build of `npm test` and `npm run test:long`. */
const compiled = path.join(root, 'dist');

let stateDir: string;
const planted: ChildProcess[] = [];
const drivers: Driver[] = [];
beforeEach(() => {
  stateDir = mkdtempSync(path.join(tmpdir(), 'hostler-survival-'));
});
afterEach(async () => {
  // Only a failed test leaves files here.
  for (const driver of drivers.splice(0)) {
    await driver.kill();
    for (const pid of carriers(driver.instanceId)) process.kill(pid, 'SIGKILL');
  }
  for (const { pid } of planted.splice(0)) if (pid !== undefined && isAlive(pid)) process.kill(-pid, 'SIGKILL');
  rmSync(stateDir, { recursive: true, force: true });
});

interface Driver {
  readonly pid: number;
  readonly instanceId: string;
  readonly watchPid: number;
  readonly pids: Readonly<Record<string, number>>;
  /** Watches after the first, each reported when it has the list. */
  successors(): number[];
  kill(): Promise<void>;
}

async function startDriver(): Promise<Driver> {
  const handle = spawn(process.execPath, [driverFile, compiled, stateDir, 'all'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let text = '';
  handle.stdout.on('data', (chunk) => {
    text += String(chunk);
  });
  const gone = new Promise<void>((resolve) => {
    handle.once('exit', () => resolve());
  });
  await until(() => text.includes('\n') || handle.exitCode !== null, 'the driver has started its children');
  const lines = () =>
    text
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Omit<Driver, 'pid' | 'kill' | 'successors'>);
  const facts = lines()[0] as Omit<Driver, 'pid' | 'kill' | 'successors'>;
  const successors = () =>
    lines()
      .slice(1)
      .map(({ watchPid }) => watchPid);
  const kill = () => {
    handle.kill('SIGKILL');
    return gone;
  };
  const driver = { ...facts, pid: handle.pid as number, successors, kill };
  drivers.push(driver);
  return driver;
}

/** A foreign process in its own group. */
async function plant(script = 'sleep 1 while 1', env = process.env): Promise<{ pid: number; startTicks: number }> {
  const handle = spawn('perl', ['-e', `${script}; sleep 1 while 1`], {
    detached: true,
    stdio: ['ignore', 'pipe', 'ignore'],
    env,
  });
  planted.push(handle);
  await until(() => factsNow(handle.pid as number)?.pgid === handle.pid, 'it has its group');
  return { pid: handle.pid as number, startTicks: factsNow(handle.pid as number)?.startTicks as number };
}

describe('S8 host killed:', () => {
  test('the death watch takes down every group within 2 s', async () => {
    const driver = await startDriver();
    const foreign = await plant();
    expect(carriers(driver.instanceId).length).toBeGreaterThanOrEqual(Object.keys(driver.pids).length);
    await driver.kill();
    await until(() => carriers(driver.instanceId).length === 0, 'nothing is left', timeLimitMs(2_000));
    expect(isAlive(foreign.pid)).toBe(true);
    await until(() => !isAlive(driver.watchPid), 'the watch has gone too');
  });

  test('a killed watch has a successor with the complete list', async () => {
    const driver = await startDriver();
    process.kill(driver.watchPid, 'SIGKILL');
    await until(() => driver.successors().length > 0, 'there is another watch');
    await driver.kill();
    await until(() => carriers(driver.instanceId).length === 0, 'nothing is left', timeLimitMs(2_000));
  });

  test.runIf(hasProc)('if the watch is dead too, the next start ends exactly the remaining processes', async () => {
    const driver = await startDriver();
    // Suspended, so that it cannot start another watch.
    process.kill(driver.pid, 'SIGSTOP');
    process.kill(driver.watchPid, 'SIGKILL');
    const { ignoresTerm, withGrandchild, stopped, sandboxed } = driver.pids as Record<string, number>;
    process.kill(withGrandchild as number, 'SIGKILL');
    await driver.kill();
    await until(() => !isAlive(sandboxed as number), 'the sandbox died with its parent', timeLimitMs(1_000));
    await until(() => !isAlive(driver.pids.obedient as number), 'the obedient one saw the end of its input');

    const foreign = [await plant(), await plant(), await plant()];
    const [reused, unmarked, unnamed] = foreign as [Plant, Plant, Plant];
    const journal = path.join(stateDir, readdirSync(stateDir).find((name) => name.endsWith('.children')) as string);
    const lines = [
      { started: { pid: reused.pid, startTicks: reused.startTicks - 1, run: 101 } },
      { started: { pid: unmarked.pid, startTicks: 0, run: 102 } },
      { started: { pid: process.pid, startTicks: 1, run: 103 } },
      { started: { pid: 1, startTicks: 0, run: 104 } },
      { started: { pid: -unnamed.pid, startTicks: unnamed.startTicks, run: 105 } },
    ];
    appendFileSync(
      journal,
      `${lines.map((line) => JSON.stringify(line)).join('\n')}\n{"started":{"pid":${unnamed.pid},"st`,
    );

    const left = carriers(driver.instanceId).sort();
    const grandchild = left.filter((pid) => factsNow(pid)?.pgid === withGrandchild);
    expect(grandchild).toHaveLength(1);
    expect(left).toEqual([driver.pids.ignoresEof, ignoresTerm, stopped, ...grandchild].sort());
    const report = await reap(stateDir, { clock: systemClock, table: systemTable });
    expect([...report.signalled].sort()).toEqual(left);
    expect(carriers(driver.instanceId)).toEqual([]);
    expect(foreign.map(({ pid }) => isAlive(pid))).toEqual([true, true, true]);
    // The home of the sandboxed server is kept.
    expect(readdirSync(stateDir)).toEqual(['sandbox']);
  });

  test('the journal of a running Hostler is not touched', async () => {
    const driver = await startDriver();
    const before = carriers(driver.instanceId).sort();
    expect(await reap(stateDir, { clock: systemClock, table: systemTable })).toEqual({
      journals: 0,
      signalled: [],
      stale: 0,
      left: 0,
      unknown: 0,
    });
    expect(carriers(driver.instanceId).sort()).toEqual(before);
    await driver.kill();
    await until(() => carriers(driver.instanceId).length === 0, 'nothing is left', timeLimitMs(2_000));
  });

  test.runIf(hasProc)('in its own PID namespace, exactly one process is left: the process that counts', () => {
    const script = `
      node "$1" "$2" "$3" all > "$3/ready" & driver=$!
      until grep -q pids "$3/ready" 2>/dev/null; do sleep 0.05; done
      set -- /proc/[0-9]*; before=$#
      kill -9 $driver
      tries=0
      while set -- /proc/[0-9]*; [ $# -gt 1 ] && [ $tries -lt 20 ]; do sleep 0.1; tries=$((tries + 1)); done
      echo "$before $#"`;
    const flags = [
      '--pid',
      '--fork',
      '--mount-proc',
      '--kill-child',
      'sh',
      '-c',
      script,
      'count',
      driverFile,
      compiled,
      stateDir,
    ];
    const [before, after] = execFileSync('unshare', flags, { encoding: 'utf8' }).trim().split(' ').map(Number);
    expect(before).toBeGreaterThan(8);
    expect(after).toBe(1);
  });
});

type Plant = { pid: number; startTicks: number };
const commandLine = (pid: number) => {
  try {
    return readFileSync(`${procFolder}/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
};

describe('S8 death watch:', () => {
  /** Feeds the script directly, and then closes its input. */
  const watch = (...lines: string[]) => {
    const input = lines.map((line) => `${line}\n`).join('');
    execFileSync('/bin/sh', ['-c', WATCH_SCRIPT, 'hostler-watch', instanceId], { input, timeout: 20_000 });
  };
  const instanceId = 'instance-under-watch';
  const marked = { ...process.env, HOSTLER_RUN: `${instanceId}.1` };

  /** A group whose leader has ended and left two other processes; the second has cleared its environment. */
  async function plantLeaderless(env: NodeJS.ProcessEnv) {
    const fork = 'for my $wipe (0, 1) { next if fork; $wipe ? exec qw(env -i sleep 1000) : exec qw(sleep 1000) }';
    const script = `${fork} select undef, undef, undef, 0.1; exit`;
    const { pid, startTicks } = await plant(script, env);
    const members = () => livingNow().filter(({ pgid }) => pgid === pid);
    await until(() => factsNow(pid) === undefined, 'its leader has gone, and was reaped');
    await until(() => members().every((member) => commandLine(member.pid).startsWith('sleep')), 'the others sleep');
    expect(members()).toHaveLength(2);
    return { pid, startTicks, members };
  }

  test.runIf(hasProc).each([
    ['a plain name', ''],
    ['parentheses, blanks and a newline in the name', '$0 = "a) S 1 (\\n9) b"'],
  ])('spares a group whose leader has another start time, and ends the right one: %s', async (_name, script) => {
    const { pid, startTicks } = await plant(script);
    await until(
      () => script === '' || readFileSync(`${procFolder}/${pid}/comm`, 'utf8').includes(')'),
      'it has its name',
    );
    watch(`+ ${pid} ${startTicks + 1}`, '+ 1 1', '+ 0 0', '+ -1 0', '+ x y', '');
    expect(isAlive(pid)).toBe(true);
    watch(`+ ${pid} ${startTicks}`);
    await until(() => !isAlive(pid), 'it is gone');
  });

  test.runIf(hasProc)(
    'a group without its leader is killed by the mark of one member, and spared when no member has it',
    async () => {
      const ours = await plantLeaderless(marked);
      const foreign = await plantLeaderless({ ...process.env, HOSTLER_RUN: `${instanceId}-2.1` });
      watch(`+ ${ours.pid} ${ours.startTicks}`, `+ ${foreign.pid} ${foreign.startTicks}`);
      await until(() => ours.members().length === 0, 'ours is gone');
      expect(foreign.members()).toHaveLength(2);
      process.kill(-foreign.pid, 'SIGKILL');
    },
  );

  test('followers that ignore SIGTERM are killed when their leader obeyed it', async () => {
    const script = 'if (!fork) { $SIG{TERM} = "IGNORE"; $0 = "deaf"; sleep 1 while 1 }';
    const { pid, startTicks } = await plant(script, marked);
    const members = () => livingNow().filter(({ pgid }) => pgid === pid);
    await until(
      () => members().some((member) => readFileSync(`${procFolder}/${member.pid}/comm`, 'utf8').includes('deaf')),
      'it is deaf',
    );
    watch(`+ ${pid} ${startTicks}`);
    await until(() => members().length === 0, 'both are gone');
  });

  test.runIf(hasProc)(
    'finds expected processes by their mark, and none of a run that it no longer expects',
    async () => {
      const pending = await plant('', { ...process.env, HOSTLER_RUN: `${instanceId}.7` });
      const leaderless = await plantLeaderless({ ...process.env, HOSTLER_RUN: `${instanceId}.8` });
      const over = await plant('', { ...process.env, HOSTLER_RUN: `${instanceId}.70` });
      const foreign = await plant('', { ...process.env, HOSTLER_RUN: `${instanceId}-2.7` });
      watch('? 7', '? 8', '? 70', '! 70');
      await until(() => !isAlive(pending.pid) && leaderless.members().length === 0, 'both are gone');
      expect([isAlive(over.pid), isAlive(foreign.pid)]).toEqual([true, true]);
    },
  );

  test('spares groups that were removed from its list', async () => {
    const one = await plant();
    const other = await plant();
    watch(`+ ${one.pid} ${one.startTicks}`, `+ ${other.pid} ${other.startTicks}`, `- ${one.pid} ${one.startTicks}`);
    await until(() => !isAlive(other.pid), 'the other is gone');
    expect(isAlive(one.pid)).toBe(true);
  });

  test('kills processes that ignore SIGTERM', async () => {
    const { pid, startTicks } = await plant('$SIG{TERM} = "IGNORE"; $0 = "deaf"');
    await until(() => readFileSync(`${procFolder}/${pid}/comm`, 'utf8').includes('deaf'), 'it is deaf');
    watch(`+ ${pid} ${startTicks}`);
    await until(() => !isAlive(pid), 'it is gone');
  });
});

describe('S8 death watch of a running host:', () => {
  const bench = useBench();

  test('needs at most 2 MB, and there is one for all children', async () => {
    await bench.stub();
    const { watchPid } = bench.keeper;
    for (let i = 0; i < 20; i++) await bench.stub();
    expect(bench.keeper.watchPid).toBe(watchPid);
    const rssKb = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`${procFolder}/${watchPid}/status`, 'utf8'))?.[1]);
    await until(() => commandLine(watchPid as number).includes('hostler-watch'), 'it runs');
    expect(rssKb()).toBeLessThanOrEqual(2_048);
    await bench.keeper.closeAll();
    expect(isAlive(watchPid as number)).toBe(false);
  });
});

test.runIf(hasProc)('P8 fd hygiene: inherited descriptors of the host do not reach a child', () => {
  const shell = `exec 9</dev/null 8>/dev/null; exec "$0" "$@"`;
  const flags = ['-c', shell, process.execPath, driverFile, compiled, stateDir, 'fds'];
  expect(execFileSync('/bin/sh', flags, { encoding: 'utf8' })).toBe('"0 1 2"\n');
});

test.runIf(hasProc)('E7 inherited descriptors of an embedder do not reach a sandboxed child', () => {
  // Node closes low numbers for its children by itself.
  const given = openSync(driverFile, 'r');
  const stdio = ['ignore', 'pipe', 'inherit', ...Array.from({ length: 37 }, () => 'ignore' as const), given] as const;
  const flags = [driverFile, compiled, stateDir, 'boxed'];
  const { stdout } = spawnSync(process.execPath, flags, { encoding: 'utf8', stdio: [...stdio] });
  closeSync(given);
  expect(stdout).toMatch(/^"socket:\[\] socket:\[\] socket:\[\](?: \/dev\/null)+"\n$/);
});

test('S7 ordered stop: a process with nothing else to do waits for the end of a stop', () => {
  const flags = [driverFile, compiled, stateDir, 'alone'];
  expect(execFileSync(process.execPath, flags, { encoding: 'utf8' })).toBe('kill\n');
});

test('S11 resource floor: without descriptors a start fails with EMFILE, and a stop still ends the whole group', () => {
  const flags = ['-c', 'ulimit -n 64; exec "$0" "$@"', process.execPath, driverFile, compiled, stateDir, 'emfile'];
  const text = execFileSync('/bin/sh', flags, { encoding: 'utf8' });
  const { outcomes, left } = JSON.parse(text) as { outcomes: string[]; left: number };
  expect(new Set(outcomes)).toEqual(new Set(['connect_failed EMFILE', 'started']));
  expect(outcomes.at(-1)).toBe('started');
  expect(left).toBe(0);
});
