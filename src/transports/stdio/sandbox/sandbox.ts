/**
 * Isolates a server from the machine, by profile:
 * - `group`: a process group only. A process that leaves the group escapes the stop, and is reported.
 * - `standard`: bubblewrap. A PID namespace, so no process survives the stop or the death of Hostler. A limited file system
 *   (sandbox-view.ts). No capabilities. The network is that of the host, including its abstract sockets.
 * Not here: finding the command (command.ts). It runs first, so that a missing command is a clear error.
 */
import { constants } from 'node:fs';
import { access, realpath } from 'node:fs/promises';
import path from 'node:path';
import { HostError } from '../../../kernel/errors.js';
import type { Mounts } from './mounts.js';
import { isWithin } from './mounts.js';
import { prepareHome } from './private-home.js';
import { type SandboxViewRequest, sandboxView } from './sandbox-view.js';
import { kernelControls } from './system-paths.js';

export type SandboxProfile = 'group' | 'standard';

interface SandboxRequest extends Omit<SandboxViewRequest, 'searchPath' | 'home'> {
  /** PATH of Hostler. The PATH of the child comes from its definition and could contain another bwrap. */
  readonly searchPath: string;
  readonly env: Readonly<Record<string, string>>;
}

export async function wrapInSandbox(request: SandboxRequest) {
  const { server, file, args, hostPaths, env } = request;
  const cwd = await realpath(request.cwd);
  const home = hostPaths.homes === undefined ? undefined : await prepareHome(hostPaths.homes, server);
  const searchPath = env.PATH ?? '';
  const { mounts, writable, variables } = await sandboxView({ ...request, cwd, searchPath, home });
  for (const control of await kernelControls()) mounts.read(control);
  const bwrap = await findBubblewrap(server, request.searchPath, writable);
  const { outside, inside } = splitEnvironment({ ...variables, ...env });
  return { file: bwrap, args: sandboxArgs({ file, args, cwd, mounts, variables: inside }), env: outside };
}

interface SandboxCommand {
  readonly file: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly mounts: Mounts;
  readonly variables: Readonly<Record<string, string>>;
}

export function sandboxArgs({ file, args, cwd, mounts, variables }: SandboxCommand): string[] {
  return [
    '--die-with-parent',
    '--unshare-pid',
    '--unshare-ipc',
    // Root would otherwise keep capabilities with which it could remount read-only mounts.
    ...['--cap-drop', 'ALL'],
    ...mounts.toArgs(),
    ...Object.entries(variables).flatMap(([name, value]) => ['--setenv', name, value]),
    ...['--chdir', cwd],
    // No --new-session: with it, SIGTERM to the group would not reach the command. The option guards a terminal against pushed
    // input, but the session of the group has no terminal.
    '--',
    file,
    ...args,
  ];
}

/**
 * Variables of the dynamic loader would affect bubblewrap itself, outside the sandbox, and could load a library that the
 * server wrote. So bubblewrap sets them inside, by options. Other variables stay in the environment, because every user can
 * read a command line.
 */
export function splitEnvironment(env: Readonly<Record<string, string>>) {
  const outside: Record<string, string> = Object.create(null);
  const inside: Record<string, string> = Object.create(null);
  for (const [name, value] of Object.entries(env)) {
    if (/^(?:LD_|GLIBC_TUNABLES$|MALLOC_)/.test(name)) inside[name] = value;
    else outside[name] = value;
  }
  return { outside, inside };
}

/** Skips folders that the server can write to: PATH may contain `node_modules/.bin` of a project. */
async function findBubblewrap(server: string, searchPath: string, writable: readonly string[]): Promise<string> {
  for (const folder of searchPath.split(path.delimiter).filter((folder) => path.isAbsolute(folder))) {
    try {
      const file = await realpath(path.join(folder, 'bwrap'));
      await access(file, constants.X_OK);
      if (!writable.some((entry) => isWithin(entry, file))) return file;
    } catch {
      // No bwrap in this folder.
    }
  }
  throw bubblewrapMissing(server);
}

const bubblewrapMissing = (server: string): HostError =>
  new HostError('connect_failed', `server '${server}': the sandbox needs bubblewrap (bwrap), which is not installed`, {
    server,
    reason: 'sandbox_unavailable',
    field: 'sandbox',
    execution: 'not_executed',
    hint: `install bubblewrap, or set "sandbox" of server '${server}' to "group" and accept that it is not confined`,
  });

/**
 * Explains the exit of a sandboxed server. A last stderr line that starts with `bwrap:` means that the sandbox could not be
 * built or could not run the command. Otherwise the server itself exited, perhaps because the sandbox hides a file.
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
