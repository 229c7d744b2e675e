/**
 * Resolves a configured command to a file like execvp(3), so that a missing program is reported before the spawn.
 * Not here: running it (child.ts), wrapping it in a sandbox (sandbox/sandbox.ts).
 * Invariant: the result is the absolute path of a file that was executable when it was checked.
 */
import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import path from 'node:path';
import { HostError } from '../../kernel/errors.js';
import type { Environment } from '../environment.js';

interface CommandRequest {
  readonly server: string;
  readonly command: string;
  readonly cwd: string;
  /** Environment of the child. Its PATH is used, not that of Hostler. */
  readonly env: Environment;
}

type Fault = 'ENOENT' | 'EACCES' | 'ENOTDIR';

const defaultPath = '/usr/local/bin:/usr/bin:/bin';

export async function resolveCommand(request: CommandRequest): Promise<string> {
  const { server, command, cwd, env } = request;
  await checkDirectory(server, cwd);
  const hasFolder = command.includes('/');
  const folders = hasFolder ? [''] : (env.PATH ?? defaultPath).split(path.delimiter);

  let fault: Fault = 'ENOENT';
  for (const folder of folders) {
    // An empty PATH entry means the working directory, as in a shell.
    const file = path.resolve(cwd, folder, command);
    const found = await faultOf(file, 'file');
    if (found === undefined) return file;
    // As in execvp, a file without permission is reported in preference to a missing file.
    if (found !== 'ENOENT' && (hasFolder || found === 'EACCES')) fault = found;
  }
  throw commandError(request, fault, hasFolder);
}

/** Returns why the file cannot be executed or the directory cannot be entered; undefined if it can. */
async function faultOf(file: string, kind: 'file' | 'directory'): Promise<Fault | undefined> {
  try {
    const facts = await stat(file);
    if (kind === 'file' && !facts.isFile()) return 'EACCES';
    if (kind === 'directory' && !facts.isDirectory()) return 'ENOTDIR';
    await access(file, constants.X_OK);
    return undefined;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === 'EACCES' || code === 'EPERM' ? 'EACCES' : code === 'ENOTDIR' ? 'ENOTDIR' : 'ENOENT';
  }
}

async function checkDirectory(server: string, cwd: string): Promise<void> {
  const fault = await faultOf(cwd, 'directory');
  if (fault === undefined) return;
  const what = { ENOENT: 'does not exist', EACCES: 'may not be entered', ENOTDIR: 'is not a directory' }[fault];
  throw new HostError('connect_failed', `server '${server}': its working directory ${cwd} ${what}`, {
    server,
    reason: fault,
    field: 'cwd',
    execution: 'not_executed',
    hint: `set "cwd" of server '${server}' to an existing directory, or leave it out`,
  });
}

function commandError({ server, command, cwd }: CommandRequest, fault: Fault, hasFolder: boolean): HostError {
  const where = hasFolder ? (path.isAbsolute(command) ? '' : ` (relative to ${cwd})`) : " on the server's PATH";
  const text: Record<Fault, readonly [string, string]> = {
    ENOENT: [
      `was not found${where}`,
      hasFolder
        ? 'check the path, or install the program'
        : `install it, give its full path as "command", or declare a PATH in "env" of server '${server}'`,
    ],
    EACCES: [
      `was found${where} but may not be executed`,
      'make the file executable (chmod +x), or start it through its interpreter',
    ],
    ENOTDIR: [`cannot be reached${where}: part of its path is not a directory`, 'check the path'],
  };
  const [what, hint] = text[fault];
  return new HostError('connect_failed', `server '${server}': command "${command}" ${what}`, {
    server,
    reason: fault,
    field: 'command',
    execution: 'not_executed',
    hint,
  });
}
