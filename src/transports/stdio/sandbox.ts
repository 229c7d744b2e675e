/**
 * What stands between a server and the machine, by profile:
 * - `group`: nothing but a process group. A process that leaves the group escapes the stop, and is reported.
 * - `standard`: bubblewrap. A PID namespace of its own, so nothing outlives the stop or our own death; the file system
 *   read-only but for declared paths; a private /tmp; no privileges to gain. The network is the host's.
 * Not here: finding the command (command.ts does so before it is wrapped, so that a missing one is still a clear error).
 */
import { constants } from 'node:fs';
import { access, realpath } from 'node:fs/promises';
import path from 'node:path';
import { HostError } from '../../kernel/errors.js';

export type SandboxProfile = 'group' | 'standard';

interface SandboxRequest {
  readonly server: string;
  readonly file: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly writablePaths: readonly string[];
  /** Our own PATH. The child's may be declared by whoever declared the server, and could name another bwrap. */
  readonly searchPath: string;
}

interface Wrapped {
  readonly file: string;
  readonly args: string[];
}

const privateTmp = '/tmp';

export async function wrapInSandbox(request: SandboxRequest): Promise<Wrapped> {
  const bwrap = await findBubblewrap(request.server, request.searchPath);
  const cwd = await realpath(request.cwd);
  const writable = await Promise.all(request.writablePaths.map((entry) => existing(request.server, cwd, entry)));
  return { file: bwrap, args: sandboxArgs({ ...request, cwd, writablePaths: writable }) };
}

/** Paths must be absolute and real. Later binds lie over earlier ones. */
export function sandboxArgs(request: Pick<SandboxRequest, 'file' | 'args' | 'cwd' | 'writablePaths'>): string[] {
  const { file, args, cwd, writablePaths } = request;
  const underTmp = [file, cwd].filter((entry) => isWithin(privateTmp, entry) && entry !== privateTmp);
  return [
    '--die-with-parent',
    '--unshare-pid',
    '--unshare-ipc',
    // Started by root it would keep root's capabilities, and with them the power to remount what is read-only here.
    ...['--cap-drop', 'ALL'],
    ...['--ro-bind', '/', '/'],
    ...['--dev', '/dev'],
    ...['--proc', '/proc'],
    ...['--tmpfs', privateTmp],
    // A server installed below /tmp must still find itself there.
    ...underTmp.flatMap((entry) => ['--ro-bind', entry, entry]),
    ...writablePaths.flatMap((entry) => ['--bind', entry, entry]),
    ...['--setenv', 'TMPDIR', privateTmp],
    ...['--chdir', cwd],
    // No --new-session: it would take the command out of the group that SIGTERM goes to. What it guards against,
    // input pushed into the terminal, cannot happen: the group has a session without a terminal.
    '--',
    file,
    ...args,
  ];
}

async function findBubblewrap(server: string, searchPath: string): Promise<string> {
  for (const folder of searchPath.split(path.delimiter).filter((folder) => path.isAbsolute(folder))) {
    const file = path.join(folder, 'bwrap');
    try {
      await access(file, constants.X_OK);
      return file;
    } catch {
      // Not there: the next folder.
    }
  }
  throw new HostError(
    'connect_failed',
    `server '${server}': the sandbox needs bubblewrap (bwrap), which is not installed`,
    {
      server,
      reason: 'sandbox_unavailable',
      field: 'sandbox',
      execution: 'not_executed',
      hint: `install bubblewrap, or set "sandbox" of server '${server}' to "group" and accept that it is not confined`,
    },
  );
}

async function existing(server: string, cwd: string, entry: string): Promise<string> {
  const wanted = path.resolve(cwd, entry);
  try {
    return await realpath(wanted);
  } catch (cause) {
    throw new HostError('connect_failed', `server '${server}': the writable path ${wanted} does not exist`, {
      server,
      reason: (cause as NodeJS.ErrnoException).code ?? 'ENOENT',
      field: 'writablePaths',
      execution: 'not_executed',
      hint: `create it, or take it out of "writablePaths" of server '${server}'`,
      cause,
    });
  }
}

function isWithin(folder: string, entry: string): boolean {
  const relative = path.relative(folder, entry);
  return !relative.startsWith('..') && !path.isAbsolute(relative);
}
