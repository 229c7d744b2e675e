/**
 * Small parent programs of Hostler in a container: they reap every process that ends there, and forward signals.
 * Node waits only for processes it started itself: as PID 1 it would leave each orphan of a server as a zombie for ever.
 * Not here: when they are used (scripts/bundle.mjs puts the first at the top of the command, init-process.ts runs the second).
 *
 * Invariants: SIGTERM, SIGINT and SIGHUP arrive below as SIGUSR2, so that a signal to the whole process group, which Hostler also
 * gets directly, is not counted twice (stop-signals.ts); the exit code is that of Hostler.
 */

/** Names this reaper to the Hostler below it. Not handed on to servers. */
export const REAPER_VARIABLE = 'HOSTLER_REAPER';

/**
 * For PID 1 as a shell: `wait` takes whatever child ends, inherited ones too (dash, bash, busybox). The command is "$@". A command
 * in the background would get /dev/null as its stdin, so that is put aside as descriptor 3. A trapped signal ends `wait` early:
 * it is repeated until the command is gone, and asked once more for a status that the signal may have hidden.
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

/** The command as a file that is a shell script first: as PID 1 the shell stays and reaps, elsewhere it becomes Node. */
export const COMMAND_HEADER = `#!/bin/sh
':' /*
set -- node "$0" "$@"
[ "$$" = 1 ] && [ "$3" = up ] || exec "$@"
${SHELL_REAPER.trim()}
*/
`;

/** Exit code of the Perl program when it cannot be a reaper: nothing was started. */
export const NO_REAPER = 97;

/**
 * For PID 1 as Node, which cannot become another program: a child that asks the kernel for the orphans below it
 * (PR_SET_CHILD_SUBREAPER, 36). Arguments: the number of the system call prctl on this machine, then the command. It takes SIGUSR2
 * from its parent only; what the whole group gets directly, Hostler has as well.
 */
export const PERL_REAPER = `
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
