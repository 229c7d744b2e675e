/**
 * Finds the program files of a server: the real file of its command, its installation, its interpreter, and the package of its
 * script. An installation is the folder above `bin` (nvm, pyenv, uv tools, virtual environments).
 * Not here: hidden files (sandbox-view.ts), files that the server works on (its definition declares them).
 * Invariants: a link that the server can change is not followed, and the first line of a script that it can change names no
 * file. Otherwise a server could point them at any file and see that file after its next start. The home of a user or a folder
 * of many programs is never shown completely.
 */
import { constants } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import path from 'node:path';
import type { ResolvedHostPaths } from './host-paths.js';
import { isWithin, type Link, type Traced, tracePath } from './mounts.js';

export interface ProgramRequest {
  readonly file: string;
  readonly args: readonly string[];
  readonly cwd: string;
  /** PATH of the server, to find the interpreter of `#!/usr/bin/env`. */
  readonly searchPath: string;
  readonly hostPaths: ResolvedHostPaths;
  /** Whether the path is visible as part of the system. */
  readonly isSystem: (real: string) => boolean;
  readonly writable: readonly string[];
}

interface ProgramPaths {
  readonly shown: readonly string[];
  readonly links: readonly Link[];
  /** Variables with which version managers find their folder. Without them they search in HOME. */
  readonly variables: Readonly<Record<string, string>>;
}

const managers: Readonly<Record<string, string>> = {
  '.asdf': 'ASDF_DATA_DIR',
  '.nodenv': 'NODENV_ROOT',
  '.pyenv': 'PYENV_ROOT',
  '.rbenv': 'RBENV_ROOT',
  '.volta': 'VOLTA_HOME',
  mise: 'MISE_DATA_DIR',
};

const programFolders = new Set(['bin', 'sbin', 'shims', 'libexec']);
/** One of these beside `bin` marks an installation. `.cargo` has none, which is intended: its folder contains credentials. */
const installationMarks = ['lib', 'lib64', 'libexec', 'versions', 'installs', 'tools', 'pyvenv.cfg', 'Cellar'];
const packageMarks = ['package.json', 'pyproject.toml', 'setup.py', 'deno.json', 'deno.jsonc'];
/** Interpreters that are followed: one may itself be a script, such as a wrapper of a virtual environment. */
const interpretersMax = 4;
const firstLineBytes = 256;

export async function programPaths(request: ProgramRequest): Promise<ProgramPaths> {
  const found = new Findings(request);
  await found.command(request.file, interpretersMax);
  const inCwd = (arg: string): string => path.resolve(request.cwd, arg);
  for (const arg of await scriptFiles(request.file, request.args, (each) => isFile(inCwd(each)))) {
    const traced = await found.follow(inCwd(arg));
    if (traced && !(await found.packageOf(traced.real))) found.show(traced.real);
  }
  const shown = [...found.shown];
  const variables = shown.flatMap((folder) => {
    const name = managers[path.basename(folder)];
    return name === undefined ? [] : [[name, folder]];
  });
  return { shown, links: [...found.links.values()], variables: Object.fromEntries(variables) };
}

class Findings {
  readonly shown = new Set<string>();
  readonly links = new Map<string, Link>();
  readonly #request: ProgramRequest;

  constructor(request: ProgramRequest) {
    this.#request = request;
  }

  async command(file: string, depth: number): Promise<void> {
    const traced = await this.follow(file);
    if (!traced) return;
    // Each link may be in an installation: npx is a link from `bin` to `lib` of the Node installation.
    for (const { at } of traced.links) await this.#installationOf(at);
    // A package below node_modules may look like an installation, but its dependencies are beside it.
    const isModule = outermostModules(traced.real) !== undefined;
    const isInstalled = !isModule && (await this.#installationOf(traced.real));
    if (!isInstalled && !(await this.packageOf(traced.real))) this.#folderOf(traced.real);
    const interpreter = depth > 0 ? await this.#interpreterOf(traced.real) : undefined;
    if (interpreter !== undefined) await this.command(interpreter, depth - 1);
  }

  /** Returns undefined if the file does not exist, or if the server could change where its path leads. */
  async follow(file: string): Promise<Traced | undefined> {
    try {
      const traced = await tracePath(file);
      const { writable } = this.#request;
      if (traced.links.some(({ at }) => writable.some((folder) => isWithin(folder, at)))) return undefined;
      for (const link of traced.links) this.links.set(link.at, link);
      return traced;
    } catch {
      return undefined;
    }
  }

  show(real: string): void {
    if (!this.#isVisible(real)) this.shown.add(real);
  }

  /** Returns false if the file belongs to no package that may be shown. */
  async packageOf(real: string): Promise<boolean> {
    if (this.#isVisible(real)) return true;
    const { mayBeShown } = this.#request.hostPaths;
    const modules = outermostModules(real);
    if (modules !== undefined && mayBeShown(modules)) {
      this.show(modules);
      return true;
    }
    const above = foldersAbove(real, mayBeShown);
    for (const [i, folder] of above.entries()) {
      if (!(await hasAny(folder, packageMarks))) continue;
      this.show(folder);
      // Packages of a workspace find their dependencies in folders further up.
      for (const each of above.slice(i + 1)) {
        const shared = await this.follow(path.join(each, 'node_modules'));
        if (shared) this.show(shared.real);
      }
      return true;
    }
    return false;
  }

  /** Returns false if the file is not in the `bin` of an installation that may be shown. */
  async #installationOf(file: string): Promise<boolean> {
    const folder = path.dirname(file);
    const prefix = path.dirname(folder);
    if (!programFolders.has(path.basename(folder))) return false;
    if (this.#isVisible(prefix)) return true;
    const { mayBeShown, hidden } = this.#request.hostPaths;
    if (!mayBeShown(prefix) || hidden.some((entry) => isWithin(prefix, entry))) return false;
    if (!(await hasAny(prefix, installationMarks))) return false;
    this.show(prefix);
    return true;
  }

  /** Shows the whole `bin`, because its programs call each other: uvx starts the uv beside it. */
  #folderOf(real: string): void {
    const folder = path.dirname(real);
    const isProgramFolder = programFolders.has(path.basename(folder)) && this.#request.hostPaths.mayBeShown(folder);
    this.show(isProgramFolder ? folder : real);
  }

  async #interpreterOf(real: string): Promise<string | undefined> {
    const line = await firstLineOf(real);
    const [file, ...rest] = line?.split(/\s+/) ?? [];
    if (file === undefined || !path.isAbsolute(file)) return undefined;
    const isOwn = this.#request.writable.some((folder) => isWithin(folder, real));
    if (path.basename(file) !== 'env') return isOwn ? undefined : file;
    const name = rest.find((word) => !word.startsWith('-') && !word.includes('='));
    if (name === undefined) return undefined;
    // A script that the server can change may name only a common interpreter, found on PATH.
    if (isOwn && (name.includes('/') || !isInterpreter(name))) return undefined;
    for (const folder of this.#request.searchPath.split(path.delimiter)) {
      const candidate = path.join(folder, name);
      if (path.isAbsolute(folder) && (await isFile(candidate))) return candidate;
    }
    return undefined;
  }

  #isVisible(real: string): boolean {
    const { isSystem, writable } = this.#request;
    return isSystem(real) || [...this.shown, ...writable].some((folder) => isWithin(folder, real));
  }
}

/** `a/node_modules/b/node_modules/c` → `a/node_modules`. */
function outermostModules(real: string): string | undefined {
  const at = real.indexOf('/node_modules/');
  return at < 0 ? undefined : real.slice(0, at + '/node_modules'.length);
}

/** Returns the nearest folder first, and stops before the first one that may not be shown. */
function foldersAbove(real: string, mayBeShown: (folder: string) => boolean): string[] {
  const folders: string[] = [];
  for (let folder = path.dirname(real); mayBeShown(folder); folder = path.dirname(folder)) folders.push(folder);
  return folders;
}

const statOf = (file: string) => stat(file).catch(() => undefined);

async function hasAny(folder: string, names: readonly string[]): Promise<boolean> {
  for (const name of names) if (await statOf(path.join(folder, name))) return true;
  return false;
}

const isFile = async (file: string): Promise<boolean> => (await statOf(file))?.isFile() ?? false;

/** Returns the line without `#!`; undefined if the file is not a script or cannot be read. */
async function firstLineOf(file: string): Promise<string | undefined> {
  try {
    // Non-blocking, because the server may have created a FIFO without a writer.
    const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(firstLineBytes), 0, firstLineBytes, 0);
      const [, line] = /^#!\s*([^\n]*)/.exec(buffer.toString('latin1', 0, bytesRead)) ?? [];
      return line?.trim();
    } finally {
      await handle.close();
    }
  } catch {
    return undefined;
  }
}

/** Names without a version: `python` for `python3.12`. */
const interpreters = new Set([
  ...['node', 'nodejs', 'bun', 'deno', 'tsx', 'ts-node', 'python', 'pypy', 'uv', 'perl', 'ruby', 'php', 'lua'],
  ...['java', 'dotnet', 'Rscript', 'sh', 'bash', 'dash', 'zsh', 'ksh'],
]);

const isInterpreter = (command: string): boolean => interpreters.has(path.basename(command).replace(/[\d.]+$/, ''));

/** Options whose next argument is a file to load. */
const loadOptions = new Set(['-r', '--require', '--import', '--loader', '--experimental-loader', '--env-file']);
/** Options whose argument is code or a module name. No script follows. */
const textOptions = new Set(['-c', '-e', '-m', '-p', '--eval', '--print', '-E']);
const argumentsMax = 64;

/**
 * Returns the arguments of an interpreter that name code: its script, and modules loaded before it. Arguments of the script are
 * not code: a server declares the files that it works on.
 */
export async function scriptFiles(
  command: string,
  args: readonly string[],
  isFile: (arg: string) => Promise<boolean>,
): Promise<string[]> {
  if (!isInterpreter(command)) return [];
  const found: string[] = [];
  for (let i = 0; i < Math.min(args.length, argumentsMax); i++) {
    const arg = args[i] as string;
    if (textOptions.has(arg)) return found;
    const [option = '', value] = arg.startsWith('--') ? splitOnce(arg) : [arg];
    if (loadOptions.has(option)) {
      const file = value ?? args[++i];
      if (file !== undefined && (await isFile(file))) found.push(file);
    } else if (!arg.startsWith('-') && (await isFile(arg))) return [...found, arg];
    // A missing path is still the script. A word without a slash may be a subcommand, such as `run`.
    else if (!arg.startsWith('-') && arg.includes('/')) return found;
  }
  return found;
}

function splitOnce(arg: string): [string, string?] {
  const at = arg.indexOf('=');
  return at < 0 ? [arg] : [arg.slice(0, at), arg.slice(at + 1)];
}
