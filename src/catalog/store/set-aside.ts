/**
 * Moves a file that cannot be used out of the way, beside the ones that were moved before.
 *
 * Invariant: what was set aside is never overwritten; there are at most `asideMax`, and past it the oldest is removed.
 */
import { existsSync, readdirSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';

export const asideMax = 5;

/** Returns where it is now: `<file>.unusable`, then `<file>.unusable-2` and so on. */
export function setAside(file: string): string {
  const folder = path.dirname(file);
  const first = `${path.basename(file)}.unusable`;
  const nameOf = (number: number) => path.join(folder, number === 1 ? first : `${first}-${number}`);
  const numbers = readdirSync(folder)
    .filter((name) => name.startsWith(first))
    .map((name) => (name === first ? 1 : Number(name.slice(first.length + 1))))
    .filter(Number.isInteger)
    .sort((a, b) => a - b);
  const aside = nameOf((numbers.at(-1) ?? 0) + 1);
  renameSync(file, aside);
  // What was not yet in the file itself goes with it.
  if (existsSync(`${file}-wal`)) renameSync(`${file}-wal`, `${aside}-wal`);
  const tooMany = Math.max(0, numbers.length + 1 - asideMax);
  for (const number of numbers.slice(0, tooMany))
    for (const end of ['', '-wal']) rmSync(`${nameOf(number)}${end}`, { force: true });
  return aside;
}
