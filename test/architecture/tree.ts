/** The repository as the architecture tests see it. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../..', import.meta.url));

export const readText = (file: string): string => readFileSync(path.join(root, file), 'utf8');
export const readJson = (file: string): unknown => JSON.parse(readText(file));

const notOurs = new Set(['node_modules', 'dist', '.git', '.vitest', 'coverage']);

/** All files below a folder, relative to the repository, with forward slashes. */
export function filesBelow(folder: string): string[] {
  return readdirSync(path.join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const file = path.posix.join(folder, entry.name);
    if (notOurs.has(entry.name)) return [];
    return entry.isDirectory() ? filesBelow(file) : entry.isFile() ? [file] : [];
  });
}
