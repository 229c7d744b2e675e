/** Why a server cannot be started in its sandbox, as coded errors that say what to change. */
import { HostError } from '../../../kernel/errors.js';

/** A path that the server declares or needs, and that the sandbox cannot or must not show. */
export const pathRefused = (server: string, field: string, what: string, hint: string): HostError =>
  new HostError('connect_failed', `server '${server}': ${field}: ${what}`, {
    server,
    reason: 'sandbox_path',
    field,
    execution: 'not_executed',
    hint,
  });

export function pathMissing(server: string, field: string, file: string, cause: unknown): HostError {
  const reason = (cause as NodeJS.ErrnoException).code ?? 'ENOENT';
  const what = reason === 'ENOENT' ? 'does not exist' : `cannot be resolved (${reason})`;
  return new HostError('connect_failed', `server '${server}': ${field}: ${file} ${what}`, {
    server,
    reason,
    field,
    execution: 'not_executed',
    hint: `create it, or remove it from "${field}" of server '${server}'`,
    cause,
  });
}

export const bubblewrapMissing = (server: string): HostError =>
  new HostError('connect_failed', `server '${server}': the sandbox needs bubblewrap (bwrap), which is not installed`, {
    server,
    reason: 'sandbox_unavailable',
    field: 'sandbox',
    execution: 'not_executed',
    hint: `install bubblewrap, or set "sandbox" of server '${server}' to "group" and accept that it is not confined`,
  });

/**
 * What the exit of a sandboxed server means. bubblewrap reports its own failures on stderr with its name in front: it could
 * not build the sandbox, or could not run the command in it. Anything else is the server's own exit, and the hint says that
 * the server may have looked for a file that the sandbox does not show.
 */
export function sandboxedExit(server: string, error: HostError, lastLine: string): HostError {
  const [, what] = /^bwrap: (.+)$/.exec(lastLine) ?? [];
  if (what === undefined) {
    const hint =
      'it runs in a sandbox that shows only the system, its program and a private HOME: declare other files in "readablePaths" or "writablePaths"';
    return error.hint === undefined && (error.details.exitCode ?? 0) !== 0 ? error.with({ hint }) : error;
  }
  const isCommand = what.startsWith('execvp ');
  return error.with({
    code: 'connect_failed',
    message: `server '${server}': ${isCommand ? 'its command cannot be run in the sandbox' : 'the sandbox could not be set up'}: ${what}`,
    reason: isCommand ? 'sandbox_path' : 'sandbox_unavailable',
    field: isCommand ? 'command' : 'sandbox',
    hint: isCommand
      ? `declare the folder of the program and of its interpreter in "readablePaths" of server '${server}'`
      : 'allow bubblewrap to create user namespaces (sysctl, AppArmor or container settings), or set "sandbox" to "group" and accept that the server is not confined',
  });
}
