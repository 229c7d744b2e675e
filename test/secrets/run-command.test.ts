/** Commands of `${exec:NAME}` with real processes: bounded in time and size, without leaks and without processes left behind. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { runCommand } from '../../src/config/secrets/run-command.js';
import { systemClock } from '../../src/kernel/clock.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { eventually } from '../eventually.js';

const secret = 'hunter2-never-shown';
const env = { PATH: process.env.PATH ?? '', MARK: 'hostler-secret-command' };
const sh = (script: string) => ({ argv: ['sh', '-c', script], env, clock: systemClock });
const perl = (script: string) => ({ argv: ['perl', '-e', script], env, clock: systemClock });
const none = ['nothing-like-this'];

describe('AC-K2 a command', () => {
  test.each([
    ['its output', sh(`printf '${secret}'`), { text: secret }],
    ['one newline less', sh(`printf '${secret}\\n\\n'`), { text: `${secret}\n` }],
    ['a CRLF less', sh(`printf '${secret}\\r\\n'`), { text: secret }],
    ['exactly 64 KiB', perl(`print "x" x 65536`), { text: 'x'.repeat(65_536) }],
    [
      'no shell: arguments are unchanged',
      { argv: ['printf', '%s', '$(id)'], env, clock: systemClock },
      { text: '$(id)' },
    ],
    ['an empty stdin', sh(`cat; printf done`), { text: 'done' }],
    ['only the given variables', sh(`printf '%s' "$MARK$HOME"`), { text: 'hostler-secret-command' }],
  ])('gives %s', async (_what, run, result) => {
    expect(await runCommand(run)).toEqual(result);
  });

  test.each([
    ['64 KiB and one byte', perl(`print "x" x 65537`), 'printed more than 64 KiB'],
    ['an endless output', perl(`print "x" x 1000 while 1`), 'printed more than 64 KiB'],
    ['an endless output to stderr and exit 1', perl(`print STDERR "x" x 10000000; exit 1`), 'ended with exit code 1'],
    ['a NUL', perl(`print "a\\0b"`), 'printed a NUL'],
    ['bytes that are no text', perl(`print "\\xff\\xfe"`), 'printed bytes that are not UTF-8'],
    ['half a character', perl(`print "\\xe2\\x82"`), 'printed bytes that are not UTF-8'],
    ['nothing', sh('true'), 'printed nothing'],
    ['one newline', sh('echo'), 'printed nothing'],
    ['exit 1', sh(`printf '${secret}'; exit 1`), 'ended with exit code 1'],
    ['exit 127', sh(`${none}`), 'ended with exit code 127'],
    ['exit 255', sh('exit 255'), 'ended with exit code 255'],
    ['a secret on stderr', sh(`echo '${secret}' >&2; exit 3`), 'ended with exit code 3'],
    ['a signal', sh(`printf '${secret}'; kill -9 $$`), 'was ended by SIGKILL'],
    ['a crash', sh('kill -SEGV $$'), 'was ended by SIGSEGV'],
    ['a hang-up', sh('kill -HUP $$'), 'was ended by SIGHUP'],
    ['a closed stdout and exit 1', sh('exec 1>&-; exit 1'), 'ended with exit code 1'],
    ['a closed stdout and exit 0', sh('exec 1>&-; exit 0'), 'printed nothing'],
    ['no such program', { argv: none, env, clock: systemClock }, 'could not be started (ENOENT)'],
    ['a folder', { argv: ['/'], env, clock: systemClock }, 'could not be started (EACCES)'],
    ['a file that is no program', { argv: ['/etc/passwd'], env, clock: systemClock }, 'could not be started (EACCES)'],
    [
      'a NUL in an argument',
      { argv: ['printf', 'a\0b'], env, clock: systemClock },
      'could not be started (ERR_INVALID_ARG_VALUE)',
    ],
    [
      'too long an argument',
      { argv: ['true', 'x'.repeat(4_000_000)], env, clock: systemClock },
      'could not be started (E2BIG)',
    ],
  ])('with %s fails: %s', async (_what, run, why) => {
    const result = await runCommand(run);
    expect(result).toEqual({ why });
  });

  test.each([
    ['hangs', 'sleep 60'],
    ['hangs and ignores signals', `trap '' TERM INT HUP; sleep 60`],
    ['prints and hangs', `printf '${secret}'; sleep 60`],
    ['prints a byte at intervals', 'while :; do printf x; sleep 0.05; done'],
    ['stops itself', 'kill -STOP $$'],
    ['waits for its own child', 'sleep 60 & wait'],
  ])('that %s is ended after 10 s', async (_what, script) => {
    const clock = new FakeClock();
    const mark = `sleeper-${Math.random()}`;
    const running = runCommand({ argv: ['sh', '-c', `: ${mark}; ${script}`], env, clock });
    await eventually('it runs', () => isRunning(mark));
    clock.advance(10_000);
    expect(await running).toEqual({ why: 'took longer than 10 s' });
    await eventually('no process is left', () => !isRunning(mark));
  });

  test.each([
    ['holds the pipe', `(sleep 60) & printf '${secret}'`, { text: secret }],
    ['holds the pipe and ignores signals', `(trap '' TERM HUP; exec sleep 60) & printf '${secret}'`, { text: secret }],
    ['left the group', `setsid sh -c 'sleep 60' & sleep 0.2; printf '${secret}'`, { text: secret }],
    ['left the group twice', `setsid setsid -f sh -c 'sleep 60'; printf '${secret}'`, { text: secret }],
    ['holds the pipe of a failed program', '(sleep 60) & exit 4', { why: 'ended with exit code 4' }],
  ])('is ended with its process in the background that %s', async (_what, script, result) => {
    const mark = `holder-${Math.random()}`;
    expect(await runCommand(sh(script.replace('sleep 60', `sleep 60 ${''}; : ${mark}`)))).toEqual(result);
    await eventually('no process is left', () => !isRunning(mark));
  });

  test.each([
    ['succeeds', `printf '${secret}'`, { text: secret }],
    ['fails', 'exit 3', { why: 'ended with exit code 3' }],
  ])('that %s keeps an agent that left the group and closed the output', async (_what, script, result) => {
    const mark = `agent-${Math.random()}`;
    const agent = `setsid -f sh -c 'echo $$; exec >&-; sleep 60; : ${mark}'`;
    const pid = path.join(mkdtempSync(path.join(tmpdir(), 'hostler-agent-')), 'pid');
    try {
      const started = `${agent} > '${pid}'; until [ -s '${pid}' ]; do sleep 0.01; done`;
      expect(await runCommand(sh(`${started}; ${script}`))).toEqual(result);
      expect(isRunning(mark)).toBe(true);
    } finally {
      process.kill(-Number(readFileSync(pid, 'utf8')), 'SIGKILL');
      rmSync(path.dirname(pid), { recursive: true });
    }
    await eventually('the agent is gone', () => !isRunning(mark));
  });

  test.each([
    ['hangs', 'sleep 60', 'took longer than 10 s'],
    ['floods', `perl -e 'print "x" x 1000 while 1'`, 'printed more than 64 KiB'],
  ])('that %s is ended with an agent that left the group', async (_what, script, why) => {
    const clock = new FakeClock();
    const mark = `agent-${Math.random()}`;
    const agent = `setsid -f sh -c 'sleep 60; : ${mark}' > /dev/null`;
    const running = runCommand({ argv: ['sh', '-c', `${agent}; sleep 0.2; ${script}`], env, clock });
    await eventually('the agent runs', () => isRunning(`: ${mark}`));
    if (why.startsWith('took')) clock.advance(10_000);
    expect(await running).toEqual({ why });
    await eventually('no process is left', () => !isRunning(mark));
  });
});

/** Whether a process with this text in its command line exists. */
function isRunning(mark: string): boolean {
  const { stdout } = spawnSync('ps', ['-eo', 'args'], { encoding: 'utf8' });
  return stdout.split('\n').some((line) => line.includes(mark));
}
