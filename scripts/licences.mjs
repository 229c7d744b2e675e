/** The licences of the packages in a bundle, which must be distributed with it. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

/** `modules`: paths of the bundled modules. Throws if a package has no licence file. */
export function licencesOf(root, modules) {
  const names = new Set(modules.flatMap((id) => packageIn(id) ?? []));
  return `${[...names]
    .sort()
    .map((name) => `${name}\n\n${licenceOf(root, name)}\n`)
    .join('\n')}`;
}

export function licenceOf(root, name) {
  const folder = path.join(root, 'node_modules', name);
  const file = ['LICENSE', 'LICENSE.md', 'LICENCE', 'license'].map((each) => path.join(folder, each)).find(existsSync);
  if (file === undefined) throw new Error(`${name} has no licence file`);
  return readFileSync(file, 'utf8').trim();
}

/** The innermost package that contains the module. */
function packageIn(id) {
  const [, after] = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(id.split('\0').at(-1) ?? '') ?? [];
  return after;
}
