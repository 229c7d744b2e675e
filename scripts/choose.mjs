/** Selects a file of a folder by its short name, which is the first argument of the command line. */
import * as fs from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { root } from './bootstrap.mjs';

/** Returns undefined if no name is given or no such file exists. It then lists the names and sets the exit code. */
export function choose({ what, usage, folder, suffix }) {
  const given = process.argv.slice(2);
  const [name, ...rest] = given[0] === '--' ? given.slice(1) : given;
  const full = path.join(root, folder);
  const files = fs.existsSync(full) ? fs.readdirSync(full) : [];
  const names = files.filter((file) => file.endsWith(suffix)).map((file) => file.slice(0, -suffix.length));
  if (name !== undefined && names.includes(name)) return { file: path.join(folder, name + suffix), rest };
  if (name !== undefined) console.error(`there is no ${what} ${name}`);
  console.log(`usage: ${usage}`);
  for (const each of names.sort()) console.log(`  ${each}`);
  if (names.length === 0) console.log(`  (there is no ${what} yet: add ${folder}/<name>${suffix})`);
  process.exitCode = name === undefined ? 0 : 2;
  return undefined;
}
