/**
 * Small parent programs of Hostler in a container: they reap every process that ends there, and forward signals.
 * Node waits only for its own children: as PID 1 it would leave each orphan of a server as a zombie.
 * The command file starts with the shell program (scripts/bundle.mjs). The Perl program runs below `node main.cjs up` as PID 1.
 * Invariants: the reaper forwards SIGTERM, SIGINT and SIGHUP as SIGUSR2. A signal to the process group also reaches Hostler
 * directly, and must not count twice (stop-signals.ts). The exit code is that of Hostler.
 */
import { spawn } from 'node:child_process';

/** Tells Hostler which reaper runs above it. Servers do not get this variable. */
export const REAPER_VARIABLE = 'HOSTLER_REAPER';

/**
 * Reaper for a shell as PID 1: `wait` also reaps inherited children (dash, bash, busybox). The command is "$@". A background
 * command would get /dev/null as stdin, so stdin is saved as descriptor 3. A trapped signal ends `wait` early. `wait` is
 * repeated until the command has exited, and once more because the signal may have hidden the status.
 */
const SHELL_REAPER = `
early= child=
stop() { if [ -n "$child" ]; then kill -s USR2 "$child" 2>/dev/null; else early=1; fi; }
trap stop TERM INT HUP
trap 'kill -s QUIT "$child" 2>/dev/null' QUIT
trap 'kill -s USR1 "$child" 2>/dev/null' USR1
exec 3<&0
${REAPER_VARIABLE}=sh "$@" <&3 3<&- &
child=$!
exec 3<&- </dev/null
[ -z "$early" ] || stop
wait "$child"; code=$?
while kill -s 0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
wait "$child"; again=$?
[ "$again" = 127 ] || code=$again
exit "$code"
`;

/** Makes the command file a shell script. As PID 1 the shell stays as the reaper; otherwise it execs Node. */
export const COMMAND_HEADER = `#!/bin/sh
':' /*
set -- node "$0" "$@"
[ "$$" = 1 ] && [ "$3" = up ] || exec "$@"
${SHELL_REAPER.trim()}
*/
`;

/** Exit code of the Perl program if it cannot become a reaper. It has then not started Hostler. */
const NO_REAPER = 97;

/**
 * Reaper for Node as PID 1, which cannot exec: a child that makes itself a subreaper (PR_SET_CHILD_SUBREAPER, 36). Arguments:
 * the number of the system call prctl, then the command. The child ignores direct stop signals, because Hostler gets them too.
 */
const PERL_REAPER = `
my ($prctl, @command) = @ARGV;
syscall($prctl + 0, 36, 1, 0, 0, 0) == 0 or exit ${NO_REAPER};
$SIG{$_} = sub {} for qw(TERM INT HUP);
my $child = fork;
defined $child or exit ${NO_REAPER};
if (!$child) { exec { $command[0] } @command or exit 127 }
for my $name (qw(USR2 USR1 QUIT)) { $SIG{$name} = sub { kill $name, $child } }
while ((my $pid = waitpid -1, 0) != $child) { exit 1 if $pid == -1 && $! != 4 }
exit($? & 127 ? 128 + ($? & 127) : $? >> 8);
`;

const prctlNumbers: Readonly<Record<string, number>> = {
  ...{ x64: 157, arm64: 167, arm: 172, ia32: 172, ppc64: 171, s390x: 172, riscv64: 167, loong64: 167 },
};

/** Resolves with the exit code of Hostler. Undefined: no reaper could run, so this process must be Hostler. */
export function runBelowReaper(): Promise<number | undefined> {
  const prctl = prctlNumbers[process.arch];
  if (process.platform !== 'linux' || prctl === undefined) return Promise.resolve(undefined);
  const command = [process.execPath, ...process.execArgv, ...process.argv.slice(1)];
  return new Promise((resolve) => {
    const child = spawn('perl', ['-e', PERL_REAPER, String(prctl), ...command], {
      stdio: 'inherit',
      env: { ...process.env, [REAPER_VARIABLE]: 'perl' },
    });
    const forwarded = [
      ...(['SIGTERM', 'SIGINT', 'SIGHUP'] as const).map((signal) => [signal, 'SIGUSR2'] as const),
      ...(['SIGQUIT', 'SIGUSR1'] as const).map((signal) => [signal, signal] as const),
    ].map(([signal, below]) => [signal, () => void child.kill(below)] as const);
    for (const [signal, forward] of forwarded) process.on(signal, forward);
    const ended = (code: number | undefined) => {
      for (const [signal, forward] of forwarded) process.off(signal, forward);
      resolve(code === NO_REAPER ? undefined : code);
    };
    // Perl is not installed.
    child.once('error', () => ended(undefined));
    child.once('exit', (code) => ended(code ?? 1));
  });
}
