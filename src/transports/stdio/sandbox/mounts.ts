/**
 * The file system of one sandbox as a list of mounts, and that list as options of bubblewrap. The file system starts empty.
 * Not here: choosing the visible paths (sandbox-view.ts).
 * Invariants: a mount follows the mount that contains it. No mount is inside a folder that the server can write to, because the
 * server could have replaced the mount point by a link. Folders created for a mount are read-only.
 */

import { readlink } from 'node:fs/promises';
import path from 'node:path';

type Mount =
  | { readonly kind: 'read' | 'write'; readonly at: string; readonly source: string }
  /** `sealed`: the folder is read-only. */
  | { readonly kind: 'empty'; readonly at: string; readonly sealed: boolean }
  | { readonly kind: 'folder' | 'proc' | 'dev'; readonly at: string }
  | { readonly kind: 'link'; readonly at: string; readonly to: string };

export class Mounts {
  readonly #byPath = new Map<string, Mount>();

  add(mount: Mount): void {
    this.#byPath.set(mount.at, mount);
  }

  read(at: string, source = at): void {
    this.add({ kind: 'read', at, source });
  }

  write(at: string, source = at): void {
    this.add({ kind: 'write', at, source });
  }

  /** Returns the innermost mount that contains this path. Ignores links and folders. */
  covering(file: string): Mount | undefined {
    let found: Mount | undefined;
    for (const mount of this.#byPath.values()) {
      if (mount.kind === 'link' || mount.kind === 'folder' || !isWithin(mount.at, file)) continue;
      if (found === undefined || mount.at.length > found.at.length) found = mount;
    }
    return found;
  }

  isVisible(file: string): boolean {
    const kind = this.covering(file)?.kind;
    return kind === 'read' || kind === 'write';
  }

  toArgs(): string[] {
    const ordered = [...this.#byPath.values()].sort((a, b) => depthOf(a.at) - depthOf(b.at));
    const sealed = ordered.flatMap((mount) => (mount.kind === 'empty' && mount.sealed ? [mount.at] : []));
    return [...ordered.flatMap(argsOf), ...[...sealed, '/'].flatMap((at) => ['--remount-ro', at])];
  }
}

const depthOf = (file: string): number => file.split('/').length;

function argsOf(mount: Mount): string[] {
  switch (mount.kind) {
    case 'read':
      // `-try`: the source may have been removed meanwhile.
      return ['--ro-bind-try', mount.source, mount.at];
    case 'write':
      return ['--bind', mount.source, mount.at];
    case 'empty':
      return ['--tmpfs', mount.at];
    case 'folder':
      return ['--dir', mount.at];
    case 'link':
      return ['--symlink', mount.to, mount.at];
    case 'proc':
      return ['--proc', mount.at];
    case 'dev':
      return ['--dev', mount.at];
    default:
      return mount satisfies never;
  }
}

export interface Link {
  readonly at: string;
  /** Target as written: absolute, or relative to the folder of the link. */
  readonly to: string;
}

export interface Traced {
  readonly real: string;
  readonly links: readonly Link[];
}

/** Symbolic links that are followed in one path, as in the Linux kernel. */
const linksMax = 40;

/**
 * Resolves an absolute path one component at a time and records its symbolic links. A sandbox shows the real file and recreates
 * the links, so that the path works inside the sandbox as it does outside.
 * Invariant: `at` of every link contains no links, so two paths through one link have the same `at`.
 * Throws the error of the file system: `ENOENT`, `ENOTDIR`, `EACCES`, or `ELOOP` for a cycle of links.
 */
export async function tracePath(file: string): Promise<Traced> {
  const links: Link[] = [];
  const pending = file.split('/');
  let real = '/';
  for (let name = pending.shift(); name !== undefined; name = pending.shift()) {
    if (name === '' || name === '.') continue;
    const next = name === '..' ? path.dirname(real) : path.join(real, name);
    const to = await targetOf(next);
    if (to === undefined) {
      real = next;
      continue;
    }
    if (links.length === linksMax) throw Object.assign(new Error(`ELOOP: ${file}`), { code: 'ELOOP' });
    links.push({ at: next, to });
    pending.unshift(...to.split('/'));
    if (path.isAbsolute(to)) real = '/';
  }
  return { real, links };
}

const targetOf = (file: string): Promise<string | undefined> =>
  readlink(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'EINVAL') return undefined;
    throw error;
  });

/** Like `tracePath`, for a path that may not exist yet: the existing part is resolved, the rest is appended as written. */
export async function traceFuturePath(file: string): Promise<Traced> {
  const absolute = path.resolve(file);
  try {
    return await tracePath(absolute);
  } catch {
    const folder = path.dirname(absolute);
    if (folder === absolute) return { real: absolute, links: [] };
    const { real, links } = await traceFuturePath(folder);
    return { real: path.join(real, path.basename(absolute)), links };
  }
}

/** Whether `entry` is `folder` or inside it. Both are absolute and real. */
export const isWithin = (folder: string, entry: string): boolean =>
  entry === folder || entry.startsWith(folder === '/' ? '/' : `${folder}/`);
