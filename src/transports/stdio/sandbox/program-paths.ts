/**
 * What a server needs to see of its own program: the real file of its command, the installation that file belongs to (the
 * folder above `bin`: nvm, pyenv, uv tools, virtual environments), the interpreter of its first line, and the package that
 * its script belongs to.
 * Not here: what of it is then hidden (view.ts), files that the server works on (declared by its definition).
 *
 * Invariants: a link that the server itself can change is not followed, and the first line of a script that it can change
 * names no file, or a server could point them at any file and see that file after its next start. A user's home or a folder of
 * many programs is never shown as a whole.
 */
import { constants } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import path from 'node:path';
import type { RealPlaces } from './places.js';
import { isInterpreter, scriptFiles } from './script-files.js';
import { isWithin, type Link, type Traced, tracePath } from './trace-path.js';

export interface ProgramRequest {
  /** The command as it was found, links included. */
  readonly file: string;
  readonly args: readonly string[];
  readonly cwd: string;
  /** PATH of the server, to find the interpreter of `#!/usr/bin/env`. */
  readonly searchPath: string;
  readonly places: RealPlaces;
  /** Shown anyway, as part of the system. */
  readonly isSystem: (real: string) => boolean;
  /** Real paths that the server may write to. */
  readonly writable: readonly string[];
}

export interface ProgramPaths {
  /** Files and folders, real. */
  readonly shown: readonly string[];
  readonly links: readonly Link[];
  /** By which version managers find their folder: without them they look for it in HOME. */
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
/** Any of them beside `bin` makes the folder an installation. `.cargo` has none: its folder holds credentials. */
const installationMarks = ['lib', 'lib64', 'libexec', 'versions', 'installs', 'tools', 'pyvenv.cfg', 'Cellar'];
const packageMarks = ['package.json', 'pyproject.toml', 'setup.py', 'deno.json', 'deno.jsonc'];
/** A script may name a script as its interpreter, such as a virtual environment's own wrapper. */
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
    // Each link on the way may lie in an installation: npx is a link from `bin` of Node's installation into its `lib`.
    for (const { at } of traced.links) await this.#installationOf(at);
    // A package below node_modules may look like an installation, and its dependencies lie beside it.
    const isModule = outermostModules(traced.real) !== undefined;
    const isInstalled = !isModule && (await this.#installationOf(traced.real));
    if (!isInstalled && !(await this.packageOf(traced.real))) this.#folderOf(traced.real);
    const interpreter = depth > 0 ? await this.#interpreterOf(traced.real) : undefined;
    if (interpreter !== undefined) await this.command(interpreter, depth - 1);
  }

  /** Undefined when it does not exist, or when the server could change where it leads. */
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

  /** False when the file belongs to no package that may be shown. */
  async packageOf(real: string): Promise<boolean> {
    if (this.#isVisible(real)) return true;
    const { mayBeShown } = this.#request.places;
    const modules = outermostModules(real);
    if (modules !== undefined && mayBeShown(modules)) {
      this.show(modules);
      return true;
    }
    const above = foldersAbove(real, mayBeShown);
    for (const [i, folder] of above.entries()) {
      if (!(await hasAny(folder, packageMarks))) continue;
      this.show(folder);
      // Packages of a workspace find their dependencies further up.
      for (const each of above.slice(i + 1)) {
        const shared = await this.follow(path.join(each, 'node_modules'));
        if (shared) this.show(shared.real);
      }
      return true;
    }
    return false;
  }

  /** False when the file does not lie in the `bin` of an installation that may be shown. */
  async #installationOf(file: string): Promise<boolean> {
    const folder = path.dirname(file);
    const prefix = path.dirname(folder);
    if (!programFolders.has(path.basename(folder))) return false;
    if (this.#isVisible(prefix)) return true;
    const { mayBeShown, hidden } = this.#request.places;
    if (!mayBeShown(prefix) || hidden.some((entry) => isWithin(prefix, entry))) return false;
    if (!(await hasAny(prefix, installationMarks))) return false;
    this.show(prefix);
    return true;
  }

  /** Programs of one `bin` call each other: uvx starts the uv beside it. */
  #folderOf(real: string): void {
    const folder = path.dirname(real);
    const isProgramFolder = programFolders.has(path.basename(folder)) && this.#request.places.mayBeShown(folder);
    this.show(isProgramFolder ? folder : real);
  }

  /** The file that the first line names: `#!/usr/bin/env node`, `#!/opt/venv/bin/python`. */
  async #interpreterOf(real: string): Promise<string | undefined> {
    const line = await firstLineOf(real);
    const [file, ...rest] = line?.split(/\s+/) ?? [];
    if (file === undefined || !path.isAbsolute(file)) return undefined;
    const isOwn = this.#request.writable.some((folder) => isWithin(folder, real));
    if (path.basename(file) !== 'env') return isOwn ? undefined : file;
    const name = rest.find((word) => !word.startsWith('-') && !word.includes('='));
    if (name === undefined) return undefined;
    // A script that the server can change may have any of the usual interpreters, as PATH finds it, and nothing else.
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

/** Nearest first, until one that may not be shown. */
function foldersAbove(real: string, mayBeShown: (folder: string) => boolean): string[] {
  const folders: string[] = [];
  for (let folder = path.dirname(real); mayBeShown(folder); folder = path.dirname(folder)) folders.push(folder);
  return folders;
}

async function hasAny(folder: string, names: readonly string[]): Promise<boolean> {
  for (const name of names) {
    try {
      await stat(path.join(folder, name));
      return true;
    } catch {
      // Not there: the next one.
    }
  }
  return false;
}

async function isFile(file: string): Promise<boolean> {
  try {
    return (await stat(file)).isFile();
  } catch {
    return false;
  }
}

/** Without `#!`; undefined when the file is no script or cannot be read. */
async function firstLineOf(file: string): Promise<string | undefined> {
  try {
    // Not blocking: the server may have put a FIFO there that no process writes to.
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
