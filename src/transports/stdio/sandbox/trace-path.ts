/**
 * An absolute path resolved one component at a time, so that the symbolic links on the way are known: a sandbox shows the
 * real file and recreates the links, and the path works inside as it does outside.
 * Invariant: `at` of every link is itself free of links, so two paths through one link name it the same way.
 */
import { readlink } from 'node:fs/promises';
import path from 'node:path';

export interface Link {
  /** Where the link lies. */
  readonly at: string;
  /** Its target as written: absolute, or relative to its folder. */
  readonly to: string;
}

export interface Traced {
  readonly real: string;
  readonly links: readonly Link[];
}

/** As the kernel does. */
const linksMax = 40;

/** Throws what the file system says: `ENOENT`, `ENOTDIR`, `EACCES`, or `ELOOP` for links in a circle. */
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

/** Undefined: not a link. */
async function targetOf(file: string): Promise<string | undefined> {
  try {
    return await readlink(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EINVAL') return undefined;
    throw error;
  }
}

/** The same for what may not exist yet: the part that exists is resolved, the rest is added as written. */
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

/** Whether `entry` is `folder` or lies below it. Both are absolute and real. */
export const isWithin = (folder: string, entry: string): boolean =>
  entry === folder || entry.startsWith(folder === '/' ? '/' : `${folder}/`);
