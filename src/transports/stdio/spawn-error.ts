/**
 * Why a process could not be started → a coded error that says what to do.
 * Not here: commands that do not exist (command.ts finds those before anything is started).
 */
import { HostError } from '../../kernel/errors.js';

const HINTS: Readonly<Record<string, string>> = {
  ENOENT: 'the file is there but the interpreter named in its first line is not: install it or correct the line',
  EACCES: 'make the file executable, and check that its file system is not mounted "noexec"',
  ENOEXEC: 'the file is no program for this machine, or a script without a "#!" line: start it through its interpreter',
  E2BIG: 'arguments and environment together are too large: pass a file instead',
  EAGAIN:
    'the limit of processes is reached (ulimit -u, or the pids limit of the container): stop something or raise it',
  EMFILE: 'too many files are open in Hostler: raise "ulimit -n", or run fewer servers at a time',
  ENFILE: 'the whole system has too many files open: raise fs.file-max, or stop something',
  ENOMEM: 'the system is out of memory: stop something, or give the machine more',
  ERR_INVALID_ARG_VALUE: 'command, arguments and environment may not contain NUL characters',
};

export function spawnError(server: string, command: string, cause: unknown): HostError {
  const { code } = cause as NodeJS.ErrnoException;
  const reason = typeof code === 'string' ? code : 'spawn';
  const hint = HINTS[reason];
  return new HostError('connect_failed', `server '${server}': "${command}" could not be started (${reason})`, {
    server,
    reason,
    execution: 'not_executed',
    cause,
    ...(hint === undefined ? {} : { hint }),
  });
}
