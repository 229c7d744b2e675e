/** The licences of the packages that are part of a bundle, which must be handed on with it. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

/** `modules`: paths of what is in the bundle. Throws when a package has no licence that could be handed on. */
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
  if (file === undefined) throw new Error(`${name} has no licence that could be handed on`);
  return readFileSync(file, 'utf8').trim();
}

/** The innermost package that the module is part of. */
function packageIn(id) {
  const [, after] = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(id.split('\0').at(-1) ?? '') ?? [];
  return after;
}
