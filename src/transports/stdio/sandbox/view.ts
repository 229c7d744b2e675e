/**
 * What one sandboxed server sees of the file system: the system, its own program, what its definition declares, a private
 * home, /tmp and /run, and nothing else.
 * Not here: how it becomes a namespace (bubblewrap, by mounts.ts), processes and environment (sandbox.ts).
 *
 * Invariants:
 * - Hostler's own files (data directory, sockets, configuration) are never visible. A declared folder that can only be
 *   read and has them in it is shown without them; one that can be written and has them in it is refused, because a
 *   server could move its parent folders and find them elsewhere after its next start.
 * - A path that the server itself can change is never resolved for it: neither as a link nor as the source of a mount.
 */
import { lstat, readdir, readlink, stat } from 'node:fs/promises';
import path from 'node:path';
import { Mounts } from './mounts.js';
import { type RealPlaces, realPlaces, type SandboxPlaces } from './places.js';
import { homeInside } from './private-home.js';
import { programPaths } from './program-paths.js';
import { pathMissing, pathRefused } from './sandbox-error.js';
import { systemPaths } from './system-paths.js';
import { isWithin, type Link, tracePath } from './trace-path.js';

export interface ViewRequest {
  readonly server: string;
  /** The command as it was found. */
  readonly file: string;
  readonly args: readonly string[];
  /** Real. Shown only when the definition declares it; otherwise an empty folder of that name. */
  readonly cwd: string;
  /** As the definition names it, with its links. */
  readonly declaredCwd: string | undefined;
  readonly readablePaths: readonly string[];
  readonly writablePaths: readonly string[];
  /** PATH of the server. */
  readonly searchPath: string;
  readonly places: SandboxPlaces;
  /** The folder shown as the home; undefined for one that is empty and not kept. */
  readonly home: string | undefined;
}

export interface View {
  readonly mounts: Mounts;
  /** Real paths that the server may write to. */
  readonly writable: readonly string[];
  /** Variables by which programs find their own installation. */
  readonly variables: Readonly<Record<string, string>>;
}

type Field = 'readablePaths' | 'writablePaths' | 'cwd';

/** Entries of one folder that are shown one by one because a hidden file lies among them. Each is a mount. */
const entriesMax = 256;

export async function sandboxView(request: ViewRequest): Promise<View> {
  const places = await realPlaces(request.places);
  const builder = new ViewBuilder(request, places, await hiddenFilesOf(places));
  return builder.build();
}

/** Those that are files, or may become files, and lie in no hidden folder. The others are hidden with their folder, or not there. */
async function hiddenFilesOf({ hidden, named }: RealPlaces): Promise<string[]> {
  const facts = await Promise.all(hidden.map((entry) => lstat(entry).catch(() => undefined)));
  const isFolder = (i: number): boolean => facts[i]?.isDirectory() === true;
  const folders = hidden.filter((_, i) => isFolder(i));
  return hidden.filter(
    (entry, i) =>
      (facts[i] !== undefined || named.includes(entry)) &&
      !isFolder(i) &&
      !folders.some((folder) => isWithin(folder, entry)),
  );
}

class ViewBuilder {
  readonly #request: ViewRequest;
  readonly #places: RealPlaces;
  readonly #hiddenFiles: readonly string[];
  readonly #mounts = new Mounts();
  readonly #links: Link[] = [];
  readonly #writable: string[] = [];
  #variables: Readonly<Record<string, string>> = {};

  constructor(request: ViewRequest, places: RealPlaces, hiddenFiles: readonly string[]) {
    this.#request = request;
    this.#places = places;
    this.#hiddenFiles = hiddenFiles;
  }

  async build(): Promise<View> {
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
      const inside = this.#places.guarded.find((own) => isWithin(real, own));
      if (inside !== undefined)
        throw this.#refused(
          'writablePaths',
          `${real} holds files of Hostler itself (${inside})`,
          'declare the folders in it that the server works on',
        );
      this.#writable.push(real);
    }
    // Below a writable folder a mount of its own adds nothing, and the server could have put a link in its place.
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
          `${real} lies in a folder of "writablePaths", which the server can read and change`,
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
    const { userHomes, isHidden } = this.#places;
    const inHome = (real: string): boolean => userHomes.some((home) => isWithin(home, real));
    const { trees, links, settings } = await systemPaths((real) => isHidden(real) || inHome(real));
    for (const tree of trees) if (!this.#mounts.isVisible(tree)) this.#mounts.read(tree);
    for (const { at, source } of settings) if (!this.#mounts.isVisible(at)) this.#mounts.read(at, source);
    this.#links.push(...links);
    // A home below /usr; but accounts of services may have /usr/bin or the like, which is no home.
    const homes = userHomes.filter((home) => trees.some((tree) => isWithin(tree, path.dirname(path.dirname(home)))));
    for (const home of homes)
      if (this.#mounts.covering(home)?.kind === 'read') this.#mounts.add({ kind: 'empty', at: home, sealed: true });
    return (real) =>
      trees.some((tree) => isWithin(tree, real)) && !homes.some((home) => isWithin(home, real)) && !isHidden(real);
  }

  async #addProgram(isSystem: (real: string) => boolean): Promise<void> {
    const { file, args, cwd, searchPath } = this.#request;
    const request = { file, args, cwd, searchPath, places: this.#places, isSystem, writable: this.#writable };
    const { shown, links, variables } = await programPaths(request);
    this.#variables = variables;
    for (const real of shown) {
      if (this.#places.isHidden(real))
        throw this.#refused(
          'command',
          `${real} lies in a folder of Hostler itself, which the sandbox hides`,
          'move the program to another folder, and declare what else it needs in "readablePaths"',
        );
      if (!this.#mounts.isVisible(real)) await this.#show(real, true);
    }
    this.#links.push(...links);
  }

  /** Shows a real path that can only be read. Files of Hostler's own in it are left out: see `#hide` for its folders. */
  async #show(real: string, isDerived: boolean): Promise<void> {
    this.#requireFree('readablePaths', real);
    if (this.#hiddenFiles.some((file) => isWithin(real, file))) await this.#showEntries(real, isDerived);
    else this.#mounts.read(real);
  }

  /**
   * A hidden file cannot be covered: whoever edits it puts a new file in its place, and the kernel then removes the cover.
   * So the folder is not shown, only what else is in it at this moment.
   */
  async #showEntries(folder: string, isDerived: boolean): Promise<void> {
    const own = this.#hiddenFiles.filter((file) => path.dirname(file) === folder).map((file) => path.basename(file));
    const names = (await readdir(folder)).filter((name) => {
      // Editors keep copies under similar names.
      if (own.some((base) => name.includes(base))) return false;
      // Of a package that was found and not declared, only what is plainly no secret.
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
    if (facts === undefined || this.#places.isHidden(entry) || this.#mounts.isVisible(entry)) return;
    if (facts.isSymbolicLink()) this.#links.push({ at: entry, to: await readlink(entry) });
    else if (facts.isDirectory() && this.#hiddenFiles.some((file) => isWithin(entry, file)))
      await this.#showEntries(entry, isDerived);
    else if (facts.isDirectory() || facts.isFile()) this.#mounts.read(entry);
  }

  /** Folders of Hostler's own inside what is shown are empty there. */
  async #hide(): Promise<void> {
    for (const entry of this.#places.hidden) {
      if (this.#mounts.covering(entry)?.kind !== 'read') continue;
      const facts = await stat(entry).catch(() => undefined);
      // Only a system folder is shown with a hidden file in it; there the folder of the file goes.
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
    if (this.#places.isHidden(real))
      throw this.#refused(
        field,
        `${real} lies in a folder of Hostler itself, which the sandbox hides`,
        'move it to another folder',
      );
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
        `the symbolic link ${link} lies in a folder of "writablePaths", where the server can change it`,
        'declare the path that it leads to',
      );
  }

  /** The home is mounted there, and nothing may lie in what the server can write to. */
  #requireFree(field: Field, real: string): void {
    if (isWithin(real, homeInside) || isWithin(homeInside, real))
      throw this.#refused(
        field,
        `${real} collides with ${homeInside}, the home inside the sandbox`,
        'move it to another folder',
      );
  }

  #refused(field: Field | 'command', what: string, hint: string) {
    return pathRefused(this.#request.server, field, what, hint);
  }
}
