/**
 * Builds the file system that one sandboxed server sees: system, program, declared paths, private home, /tmp and /run.
 * Not here: the namespace (mounts.ts), processes and environment (sandbox.ts).
 * Invariants:
 * - The files of Hostler (data directory, sockets, configuration) are never visible. A declared read-only folder is shown
 *   without them. A declared writable folder that contains them is refused: a server could move their parent folders and find
 *   them at another path after its next start.
 * - A path that the server can change is never resolved, neither as a link nor as the source of a mount.
 */
import { lstat, readdir, readlink, stat } from 'node:fs/promises';
import path from 'node:path';
import { HostError } from '../../../kernel/errors.js';
import { type HostPaths, type ResolvedHostPaths, resolveHostPaths } from './host-paths.js';
import { isWithin, type Link, Mounts, tracePath } from './mounts.js';
import { homeInside } from './private-home.js';
import { programPaths } from './program-paths.js';
import { systemPaths } from './system-paths.js';

export interface SandboxViewRequest {
  readonly server: string;
  /** Path of the command, with its links. */
  readonly file: string;
  readonly args: readonly string[];
  /** Real path. Shown only if the definition declares it; otherwise an empty folder of that name. */
  readonly cwd: string;
  /** Path in the definition, with its links. */
  readonly declaredCwd: string | undefined;
  readonly readablePaths: readonly string[];
  readonly writablePaths: readonly string[];
  readonly searchPath: string;
  readonly hostPaths: HostPaths;
  /** Folder shown as the home. Undefined: an empty home that is discarded at the end. */
  readonly home: string | undefined;
}

export interface SandboxView {
  readonly mounts: Mounts;
  readonly writable: readonly string[];
  /** Variables with which programs find their installation. */
  readonly variables: Readonly<Record<string, string>>;
}

type Field = 'readablePaths' | 'writablePaths' | 'cwd';

/** Maximum number of entries mounted one by one, for a folder that contains a hidden file. */
const entriesMax = 256;

export async function sandboxView(request: SandboxViewRequest): Promise<SandboxView> {
  const hostPaths = await resolveHostPaths(request.hostPaths);
  const builder = new ViewBuilder(request, hostPaths, await hiddenFilesOf(hostPaths));
  return builder.build();
}

/** Returns hidden files outside hidden folders, including paths that may become files. */
async function hiddenFilesOf({ hidden, hiddenWhileMissing }: ResolvedHostPaths): Promise<string[]> {
  const facts = await Promise.all(hidden.map((entry) => lstat(entry).catch(() => undefined)));
  const isFolder = (i: number): boolean => facts[i]?.isDirectory() === true;
  const folders = hidden.filter((_, i) => isFolder(i));
  return hidden.filter(
    (entry, i) =>
      (facts[i] !== undefined || hiddenWhileMissing.includes(entry)) &&
      !isFolder(i) &&
      !folders.some((folder) => isWithin(folder, entry)),
  );
}

class ViewBuilder {
  readonly #request: SandboxViewRequest;
  readonly #hostPaths: ResolvedHostPaths;
  readonly #hiddenFiles: readonly string[];
  readonly #mounts = new Mounts();
  readonly #links: Link[] = [];
  readonly #writable: string[] = [];
  #variables: Readonly<Record<string, string>> = {};

  constructor(request: SandboxViewRequest, hostPaths: ResolvedHostPaths, hiddenFiles: readonly string[]) {
    this.#request = request;
    this.#hostPaths = hostPaths;
    this.#hiddenFiles = hiddenFiles;
  }

  async build(): Promise<SandboxView> {
    this.#mounts.add({ kind: 'dev', at: '/dev' });
    this.#mounts.add({ kind: 'proc', at: '/proc' });
    await this.#declareWritable();
    await this.#declareReadable();
    const isSystem = await this.#addSystem();
    await this.#addProgram(isSystem);
    await this.#hide();
    for (const link of this.#links) this.#addLink(link);
    this.#addOwnFolders();
    return { mounts: this.#mounts, writable: this.#writable, variables: this.#variables };
  }

  async #declareWritable(): Promise<void> {
    for (const entry of this.#request.writablePaths) {
      const real = await this.#declared('writablePaths', entry);
      const inside = this.#hostPaths.guarded.find((own) => isWithin(real, own));
      if (inside !== undefined)
        throw this.#refused(
          'writablePaths',
          `${real} holds files of Hostler itself (${inside})`,
          'declare the folders in it that the server works on',
        );
      this.#writable.push(real);
    }
    // Inside a writable folder another mount is useless, and the server could have replaced its target by a link.
    const outermost = this.#writable.filter(
      (real) => !this.#writable.some((other) => other !== real && isWithin(other, real)),
    );
    for (const real of outermost) this.#mounts.write(real);
    for (const { at } of this.#links) this.#requireUnchangeable('writablePaths', at);
  }

  async #declareReadable(): Promise<void> {
    const { readablePaths, declaredCwd } = this.#request;
    for (const entry of readablePaths) {
      const real = await this.#declaredReadable('readablePaths', entry);
      if (this.#isWritable(real))
        throw this.#refused(
          'readablePaths',
          `${real} is in a folder of "writablePaths", which the server can read and change`,
          'remove it from "readablePaths", or declare smaller folders in "writablePaths"',
        );
      await this.#show(real, false);
    }
    if (declaredCwd === undefined) return;
    const real = await this.#declaredReadable('cwd', declaredCwd);
    if (!this.#isWritable(real)) await this.#show(real, false);
  }

  async #declaredReadable(field: Field, entry: string): Promise<string> {
    const before = this.#links.length;
    const real = await this.#declared(field, entry);
    for (const { at } of this.#links.slice(before)) this.#requireUnchangeable(field, at);
    return real;
  }

  async #addSystem(): Promise<(real: string) => boolean> {
    const { userHomes, isHidden } = this.#hostPaths;
    const inHome = (real: string): boolean => userHomes.some((home) => isWithin(home, real));
    const { trees, links, settings } = await systemPaths((real) => isHidden(real) || inHome(real));
    for (const tree of trees) if (!this.#mounts.isVisible(tree)) this.#mounts.read(tree);
    for (const { at, source } of settings) if (!this.#mounts.isVisible(at)) this.#mounts.read(at, source);
    this.#links.push(...links);
    // A home may be below /usr. Accounts of services may have a folder such as /usr/bin, which is not a home.
    const homes = userHomes.filter((home) => trees.some((tree) => isWithin(tree, path.dirname(path.dirname(home)))));
    for (const home of homes)
      if (this.#mounts.covering(home)?.kind === 'read') this.#mounts.add({ kind: 'empty', at: home, sealed: true });
    return (real) =>
      trees.some((tree) => isWithin(tree, real)) && !homes.some((home) => isWithin(home, real)) && !isHidden(real);
  }

  async #addProgram(isSystem: (real: string) => boolean): Promise<void> {
    const { file, args, cwd, searchPath } = this.#request;
    const request = { file, args, cwd, searchPath, hostPaths: this.#hostPaths, isSystem, writable: this.#writable };
    const { shown, links, variables } = await programPaths(request);
    this.#variables = variables;
    for (const real of shown) {
      if (this.#hostPaths.isHidden(real))
        throw this.#hidden(
          'command',
          real,
          'move the program to another folder, and declare its files in "readablePaths"',
        );
      if (!this.#mounts.isVisible(real)) await this.#show(real, true);
    }
    this.#links.push(...links);
  }

  /** Shows a real path read-only, without files of Hostler. `#hide` hides the folders of Hostler. */
  async #show(real: string, isDerived: boolean): Promise<void> {
    this.#requireFree('readablePaths', real);
    if (this.#hiddenFiles.some((file) => isWithin(real, file))) await this.#showEntries(real, isDerived);
    else this.#mounts.read(real);
  }

  /**
   * A mount over a hidden file would not last: an editor replaces the file, and then the kernel removes the mount. So the other
   * current entries of the folder are mounted one by one.
   */
  async #showEntries(folder: string, isDerived: boolean): Promise<void> {
    const own = this.#hiddenFiles.filter((file) => path.dirname(file) === folder).map((file) => path.basename(file));
    const names = (await readdir(folder)).filter((name) => {
      // Editors write copies under similar names.
      if (own.some((base) => name.includes(base))) return false;
      // A package that was not declared is shown without dot files, because they may contain secrets.
      return !(isDerived && own.length > 0 && name.startsWith('.'));
    });
    if (names.length > entriesMax)
      throw this.#refused(
        isDerived ? 'command' : 'readablePaths',
        `${folder} has more than ${entriesMax} entries beside the configuration`,
        'move the configuration to a folder of its own',
      );
    this.#mounts.add({ kind: 'folder', at: folder });
    for (const name of names) await this.#showEntry(path.join(folder, name), isDerived);
  }

  async #showEntry(entry: string, isDerived: boolean): Promise<void> {
    const facts = await lstat(entry).catch(() => undefined);
    if (facts === undefined || this.#hostPaths.isHidden(entry) || this.#mounts.isVisible(entry)) return;
    if (facts.isSymbolicLink()) this.#links.push({ at: entry, to: await readlink(entry) });
    else if (facts.isDirectory() && this.#hiddenFiles.some((file) => isWithin(entry, file)))
      await this.#showEntries(entry, isDerived);
    else if (facts.isDirectory() || facts.isFile()) this.#mounts.read(entry);
  }

  /** Folders of Hostler inside a visible folder appear empty. */
  async #hide(): Promise<void> {
    for (const entry of this.#hostPaths.hidden) {
      if (this.#mounts.covering(entry)?.kind !== 'read') continue;
      const facts = await stat(entry).catch(() => undefined);
      // A file cannot be shown as empty, so its whole folder is. Only system folders can still show such a file here: others omit it.
      if (facts)
        this.#mounts.add({ kind: 'empty', at: facts.isDirectory() ? entry : path.dirname(entry), sealed: true });
    }
  }

  #addLink({ at, to }: Link): void {
    const kind = this.#mounts.covering(at)?.kind;
    if (kind === undefined || kind === 'empty') this.#mounts.add({ kind: 'link', at, to });
  }

  #addOwnFolders(): void {
    const { home, cwd } = this.#request;
    for (const at of ['/tmp', '/run', '/var/tmp'])
      if (!this.#mounts.isVisible(at)) this.#mounts.add({ kind: 'empty', at, sealed: false });
    if (home === undefined) this.#mounts.add({ kind: 'empty', at: homeInside, sealed: false });
    else this.#mounts.write(homeInside, home);
    const above = this.#mounts.covering(cwd);
    if (above === undefined || (above.kind === 'empty' && above.at !== cwd))
      this.#mounts.add({ kind: 'folder', at: cwd });
  }

  async #declared(field: Field, entry: string): Promise<string> {
    const file = path.resolve(this.#request.cwd, entry);
    const traced = await tracePath(file).catch((error: unknown) => {
      throw pathMissing(this.#request.server, field, file, error);
    });
    const { real, links } = traced;
    if (real === '/' || real === '/dev' || isWithin('/proc', real))
      throw this.#refused(
        field,
        `${real} cannot be shown in a sandbox`,
        'declare the folders that the server works on',
      );
    if (this.#hostPaths.isHidden(real)) throw this.#hidden(field, real, 'move it to another folder');
    this.#requireFree(field, real);
    this.#links.push(...links);
    return real;
  }

  #isWritable(real: string): boolean {
    return this.#writable.some((folder) => isWithin(folder, real));
  }

  #requireUnchangeable(field: Field, link: string): void {
    if (this.#isWritable(link))
      throw this.#refused(
        field,
        `the symbolic link ${link} is in a folder of "writablePaths", where the server can change it`,
        'declare the path that it leads to',
      );
  }

  /** The home is mounted at `homeInside`, and no mount may be inside a folder that the server can write to. */
  #requireFree(field: Field, real: string): void {
    if (isWithin(real, homeInside) || isWithin(homeInside, real))
      throw this.#refused(
        field,
        `${real} collides with ${homeInside}, the home inside the sandbox`,
        'move it to another folder',
      );
  }

  #hidden(field: Field | 'command', real: string, hint: string): HostError {
    return this.#refused(field, `${real} is in a folder of Hostler itself, which the sandbox hides`, hint);
  }

  #refused(field: Field | 'command', what: string, hint: string): HostError {
    const { server } = this.#request;
    const details = { server, reason: 'sandbox_path', field, execution: 'not_executed', hint } as const;
    return new HostError('connect_failed', `server '${server}': ${field}: ${what}`, details);
  }
}

function pathMissing(server: string, field: string, file: string, cause: unknown): HostError {
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
