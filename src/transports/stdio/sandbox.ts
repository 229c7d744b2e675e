/**
 * What stands between a server and the machine, by profile:
 * - `group`: nothing but a process group. A process that leaves the group escapes the stop, and is reported.
 * - `standard`: bubblewrap. A PID namespace of its own, so nothing outlives the stop or our own death; a file system that
 *   holds the system, the server's program and what it declares (sandbox/view.ts); no privileges to gain. The network is
 *   the host's, and with it the abstract sockets of the machine.
 * Not here: finding the command (command.ts does so before it is wrapped, so that a missing one is still a clear error).
 */
import { constants } from 'node:fs';
import { access, realpath } from 'node:fs/promises';
import path from 'node:path';
import type { Mounts } from './sandbox/mounts.js';
import { prepareHome } from './sandbox/private-home.js';
import { bubblewrapMissing } from './sandbox/sandbox-error.js';
import { kernelControls } from './sandbox/system-paths.js';
import { isWithin } from './sandbox/trace-path.js';
import { sandboxView, type ViewRequest } from './sandbox/view.js';

export type SandboxProfile = 'group' | 'standard';

interface SandboxRequest extends Omit<ViewRequest, 'searchPath' | 'home'> {
  /** Our own PATH. The child's may be declared by whoever declared the server, and could name another bwrap. */
  readonly searchPath: string;
  /** The child's. */
  readonly env: Readonly<Record<string, string>>;
}

interface Wrapped {
  readonly file: string;
  readonly args: string[];
  readonly env: Record<string, string>;
}

export async function wrapInSandbox(request: SandboxRequest): Promise<Wrapped> {
  const { server, file, args, places, env } = request;
  const cwd = await realpath(request.cwd);
  const home = places.homes === undefined ? undefined : await prepareHome(places.homes, server);
  const searchPath = env.PATH ?? '';
  const { mounts, writable, variables } = await sandboxView({ ...request, cwd, searchPath, home });
  for (const control of await kernelControls()) mounts.read(control);
  const bwrap = await findBubblewrap(server, request.searchPath, writable);
  const { outside, inside } = splitEnvironment({ ...variables, ...env });
  return { file: bwrap, args: sandboxArgs({ file, args, cwd, mounts, variables: inside }), env: outside };
}

interface ArgsRequest {
  readonly file: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly mounts: Mounts;
  /** Set inside only. */
  readonly variables: Readonly<Record<string, string>>;
}

export function sandboxArgs({ file, args, cwd, mounts, variables }: ArgsRequest): string[] {
  return [
    '--die-with-parent',
    '--unshare-pid',
    '--unshare-ipc',
    // Started by root it would keep root's capabilities, and with them the power to remount what is read-only here.
    ...['--cap-drop', 'ALL'],
    ...mounts.toArgs(),
    ...Object.entries(variables).flatMap(([name, value]) => ['--setenv', name, value]),
    ...['--chdir', cwd],
    // No --new-session: it would take the command out of the group that SIGTERM goes to. What it guards against,
    // input pushed into the terminal, cannot happen: the group has a session without a terminal.
    '--',
    file,
    ...args,
  ];
}

/**
 * Variables that the dynamic loader obeys would act on bubblewrap, outside of the sandbox, where they could load a library
 * that the server wrote. All others stay in the environment: a command line can be read by every user.
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

/** Not from a folder that the server can write to: PATH may have `node_modules/.bin` of a project in it. */
async function findBubblewrap(server: string, searchPath: string, writable: readonly string[]): Promise<string> {
  for (const folder of searchPath.split(path.delimiter).filter((folder) => path.isAbsolute(folder))) {
    try {
      const file = await realpath(path.join(folder, 'bwrap'));
      await access(file, constants.X_OK);
      if (!writable.some((entry) => isWithin(entry, file))) return file;
    } catch {
      // Not there: the next folder.
    }
  }
  throw bubblewrapMissing(server);
}
