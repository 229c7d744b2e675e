/** Starting: the view of a child, its descriptors, and the errors when it cannot be started. */
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/kernel/clock.js';
import { ChildProcesses } from '../../src/transports/stdio/child-processes.js';
import { inheritedDescriptors } from '../../src/transports/stdio/inherited-descriptors.js';
import { openStdio } from '../../src/transports/stdio/stdio-channel.js';
import { hasProc, procFolder } from '../real-table.js';
import { carriers, fakes, profiles, stubServer, Talk, until, useBench } from './harness.js';

const bench = useBench();

const fdCount = () => readdirSync(`${procFolder}/self/fd`).length;

test.runIf(hasProc).each(profiles)('P8 fd hygiene: a child under profile %s sees 0, 1 and 2 only', async (sandbox) => {
  const talk = await bench.open({
    sandbox,
    env: { PROC: procFolder },
    args: [
      '-e',
      '$| = 1; my @f = grep { -e "$ENV{PROC}/self/fd/$_" } 0..1023; print qq({"jsonrpc":"2.0","method":"fds","params":{"fds":"@f"}}\n); <STDIN>',
    ],
  });
  await until(() => talk.messages.length > 0, 'the child has answered');
  // The child also has the descriptors that the test runner was given, in a sandbox as /dev/null. The driver in survival.test.ts
  // shows the rule without them.
  const given = inheritedDescriptors().map((descriptor) => ` ${descriptor}`);
  expect(talk.messages).toEqual([`{"fds":"0 1 2${given.join('')}"}`]);
});

test('P8 fd hygiene: a hundred starts and stops leave no descriptor behind', async () => {
  const cycle = async () => (await bench.stub()).channel.close();
  await cycle();
  const before = fdCount();
  for (let i = 0; i < 20; i++) await Promise.all(Array.from({ length: 5 }, cycle));
  expect(fdCount()).toBe(before);
  expect(bench.keeper.liveChildren).toBe(0);
});

test('P8 fd hygiene: a grandchild that has the pipes open uses no descriptor of the host', async () => {
  await (await bench.stub()).channel.close();
  const before = fdCount();
  const talk = await bench.stub('--grandchild', 'setsid', '--exit', '0');
  await talk.whenClosed();
  await talk.channel.close();
  await until(() => fdCount() === before, 'the pipes are closed');
  for (const pid of carriers(bench.keeper.instanceId)) process.kill(pid, 'SIGKILL');
  await until(() => bench.keeper.liveChildren === 0, 'it is over');
});

test.each(profiles)(
  'N-E1 environment: a child under profile %s sees only the baseline, declared variables, and its mark',
  async (sandbox) => {
    const baseline = {
      PATH: process.env.PATH,
      HOME: '/h',
      USER: 'u',
      LANG: 'C',
      LC_ALL: 'C',
      TERM: 'dumb',
      SHELL: '/bin/sh',
      TMPDIR: '/tmp',
      XDG_CACHE_HOME: '/c',
    };
    // Bubblewrap sets PWD to the folder that it starts the child in.
    const inside = {
      PWD: '/usr',
      HOME: '/sandbox/home',
      XDG_CACHE_HOME: '/sandbox/home/.cache',
      XDG_CONFIG_HOME: '/sandbox/home/.config',
      XDG_DATA_HOME: '/sandbox/home/.local/share',
      XDG_STATE_HOME: '/sandbox/home/.local/state',
    };
    const ours = { AWS_SECRET_ACCESS_KEY: 's', NODE_OPTIONS: '--no-warnings', LD_PRELOAD: '', HOSTLER_RUN: 'forged' };
    const children = new ChildProcesses({ clock: systemClock, ambient: { ...baseline, ...ours } });
    const script =
      'print qq({"jsonrpc":"2.0","method":"env","params":"), join("|", map { "$_=$ENV{$_}" } sort keys %ENV)';
    const args = ['-e', `$| = 1; ${script}, qq("}\n); <STDIN>`];
    const spec = { server: 'stub', command: 'perl', args, cwd: '/usr', env: { DECLARED: 'yes' }, sandbox };
    const talk = new Talk(await openStdio(spec, { clock: systemClock, cleanText: String, children }));
    await until(() => talk.messages.length > 0, 'the child has answered');
    await children.closeAll();
    const expected = {
      ...baseline,
      DECLARED: 'yes',
      HOSTLER_RUN: `${children.instanceId}.1`,
      ...(sandbox === 'standard' ? inside : {}),
    };
    const seen = (talk.messages[0] as string).slice(1, -1).split('|');
    expect(seen).toEqual(
      Object.entries(expected)
        .map(([name, value]) => `${name}=${value}`)
        .sort(),
    );
  },
);

test.runIf(hasProc)('N-E1 sandbox: only declared paths can be written, /tmp is private', async () => {
  const writable = mkdtempSync(path.join(tmpdir(), 'hostler-writable-'));
  const attempts = [
    path.join(writable, 'a'),
    '/tmp/b',
    path.join(bench.stateDir, 'c'),
    path.join(fakes, 'f'),
    '/var/d',
    '/dev/shm/../../etc/e',
  ];
  const talk = await bench.open({
    sandbox: 'standard',
    writablePaths: [writable],
    args: [
      '-e',
      '$| = 1; my @ok = map { open(my $f, ">", $_) ? 1 : 0 } @ARGV; print qq({"jsonrpc":"2.0","method":"w","params":"@ok"}\n); <STDIN>',
      ...attempts,
    ],
  });
  await until(() => talk.messages.length > 0 || talk.closed.length > 0, 'the child has answered');
  expect(talk.messages).toEqual(['"1 1 0 0 0 0"']);
  expect(readdirSync(writable)).toEqual(['a']);
  expect(readdirSync(bench.stateDir)).not.toContain('c');
  rmSync(writable, { recursive: true });
});

test('S6 permanent failure: a failed start has its reason', async () => {
  const file = (name: string, text: string, mode = 0o755) => {
    const full = path.join(bench.stateDir, name);
    writeFileSync(full, text);
    chmodSync(full, mode);
    return full;
  };
  const cases = [
    [{ command: 'no-such-program-here' }, 'ENOENT'],
    [{ command: file('bad-interpreter', '#!/no/such/interpreter\n') }, 'ENOENT'],
    [{ command: file('not-executable', '#!/bin/sh\n', 0o644) }, 'EACCES'],
    [{ command: '/etc' }, 'EACCES'],
    [{ args: ['-e', 'x'.repeat(3_000_000)] }, 'E2BIG'],
    [{ args: ['a\0b'] }, 'ERR_INVALID_ARG_VALUE'],
    [{ cwd: '/no/such/folder' }, 'ENOENT'],
    [{ sandbox: 'standard', writablePaths: ['/no/such/folder'] }, 'ENOENT'],
    [{ sandbox: 'standard', readablePaths: ['/no/such/folder'] }, 'ENOENT'],
    [{ sandbox: 'standard', writablePaths: [tmpdir()] }, 'sandbox_path'],
  ] as const;
  for (const [spec, reason] of cases) {
    const error = await bench.open(spec).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect(error, reason).toMatchObject({
      code: 'connect_failed',
      message: expect.stringMatching(/^server 'stub'.*[^.]$/s),
      details: { reason, execution: 'not_executed', server: 'stub' },
      hint: expect.stringMatching(/^[a-z].*[^.]$/),
    });
  }
  expect(bench.keeper.liveChildren).toBe(0);
});

test('S6 permanent failure: a sandbox that is not installed is reported, with the remedy', async () => {
  const keeper = new ChildProcesses({ clock: systemClock, ambient: { PATH: '/no/such/folder' } });
  const spec = { server: 'stub', command: '/bin/sh', sandbox: 'standard' } as const;
  await expect(openStdio(spec, { clock: systemClock, cleanText: String, children: keeper })).rejects.toMatchObject({
    code: 'connect_failed',
    details: { reason: 'sandbox_unavailable' },
    hint: expect.stringContaining('"group"'),
  });
});

test('S6 permanent failure: on Windows a child process is refused before anything else', async () => {
  const platform = Object.getOwnPropertyDescriptor(process, 'platform') as PropertyDescriptor;
  Object.defineProperty(process, 'platform', { ...platform, value: 'win32' });
  try {
    await expect(bench.open({ command: 'no-such-program-here' })).rejects.toMatchObject({
      code: 'connect_failed',
      message: expect.stringMatching(/^server 'stub'.*[^.]$/),
      details: { server: 'stub', reason: 'unsupported_platform', execution: 'not_executed' },
      hint: expect.stringContaining('WSL'),
    });
  } finally {
    Object.defineProperty(process, 'platform', platform);
  }
});

test('a state directory that others may write to is reported once, and not used', async () => {
  const problems: unknown[] = [];
  chmodSync(bench.stateDir, 0o777);
  const keeper = new ChildProcesses({
    clock: systemClock,
    stateDir: bench.stateDir,
    ambient: process.env,
    onProblem: (error) => problems.push(error),
  });
  expect(await keeper.reapLeftovers()).toEqual({ journals: 0, signalled: [], stale: 0, left: 0, unknown: 0 });
  const spec = { server: 'stub', command: 'perl', args: [stubServer] };
  const channel = await openStdio(spec, { clock: systemClock, cleanText: String, children: keeper });
  await channel.close();
  await keeper.closeAll();
  expect(problems).toMatchObject([{ code: 'invalid_spec', details: { reason: 'others_may_write' } }]);
  expect(readdirSync(bench.stateDir)).toEqual([]);
});

test('E15 a program that embeds a host as PID 1 gets one report that orphans are not reaped', async () => {
  const problems: unknown[] = [];
  const onProblem = (error: unknown) => void problems.push(error);
  const keeper = new ChildProcesses({ clock: systemClock, ambient: process.env, isInit: true, onProblem });
  const spec = { server: 'stub', command: 'perl', args: [stubServer] };
  const open = () => openStdio(spec, { clock: systemClock, cleanText: String, children: keeper });
  await Promise.all([open(), open()]);
  await keeper.closeAll();
  expect(problems).toMatchObject([
    { code: 'invalid_spec', details: { reason: 'pid_1' }, hint: expect.stringContaining('docker run --init') },
  ]);
});

test('the journal names a child from its start until its end', async () => {
  const journal = () => readFileSync(path.join(bench.stateDir, `${bench.keeper.instanceId}.children`), 'utf8');
  const talk = await bench.open({ args: [stubServer] });
  const { pid } = talk.channel.describe();
  expect(journal()).toContain(`"started":{"pid":${pid},`);
  await talk.channel.close();
  expect(journal()).toContain(`"ended":{"pid":${pid},`);
});
