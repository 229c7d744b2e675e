/**
 * Resolves an absolute path one component at a time and records its symbolic links. A sandbox shows the real file and recreates
 * the links, so that the path works inside as outside.
 * Invariant: `at` of every link contains no links, so two paths through one link have the same `at`.
 */
import { readlink } from 'node:fs/promises';
import path from 'node:path';

export interface Link {
  readonly at: string;
  /** Target as written: absolute, or relative to the folder of the link. */
  readonly to: string;
}

export interface Traced {
  readonly real: string;
  readonly links: readonly Link[];
}

/** Limit of the Linux kernel. */
const linksMax = 40;

/** Throws the error of the file system: `ENOENT`, `ENOTDIR`, `EACCES`, or `ELOOP` for a cycle of links. */
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
