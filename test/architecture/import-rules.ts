/**
 * The import order of folders. A pure function from source texts to sentences about mistakes.
 * Not here: reading the tree (imports.test.ts).
 */
import { builtinModules } from 'node:module';
import path from 'node:path';
import { parseAst } from 'vitest/node';

/** Top to bottom: a folder may import itself and folders in rows above it. Folders in one row do not import each other. */
const layers: readonly (readonly string[])[] = [
  ['kernel'],
  ['wire'],
  ['config'],
  ['supervisor'],
  ['policy'],
  ['transports'],
  ['session'],
  ['catalog'],
  ['identity'],
  ['host'],
  ['gateway', 'broker', 'dashboard'],
  ['cli', 'library'],
];

/**
 * The only exception: a worker contains a gateway. It serves remote tools to a client through the stdio ingress and the router of
 * gateway/, which do not import the broker.
 */
const exceptions: readonly (readonly [from: string, to: string])[] = [['src/broker/worker/', 'src/gateway/']];

/** Path below the repository, with forward slashes, to its text. */
export type Sources = Readonly<Record<string, string>>;

export interface Import {
  readonly file: string;
  /** As written. */
  readonly specifier: string;
  /** The source file that the specifier names; undefined for packages and builtins. */
  readonly target: string | undefined;
  /** An `import()`, which runs only when the line is reached. */
  readonly isDynamic: boolean;
  /** An `import type`, which is not in the compiled file. */
  readonly isType: boolean;
}

type Node = Record<string, unknown> & { type: string };

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string';

export function* nodesOf(node: Node): Generator<Node> {
  yield node;
  for (const value of Object.values(node)) {
    for (const each of Array.isArray(value) ? value : [value]) if (isNode(each)) yield* nodesOf(each);
  }
}

export const parse = (text: string): Node => parseAst(text, { lang: 'ts' }) as unknown as Node;

export const isTest = (file: string): boolean => file.endsWith('.test.ts');
const isRootEntry = (file: string): boolean => /^src\/[^/]+$/.test(file);
const folderOf = (file: string): string => file.split('/')[1] ?? '';
const packageOf = (specifier: string): string => specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/');

/** All imports of one file: static, for types, dynamic, `export from`, `import()` types and `import = require()`. */
export function importsOf(file: string, text: string): Import[] {
  const found: Import[] = [];
  for (const node of nodesOf(parse(text))) {
    const source = node.type === 'TSExternalModuleReference' ? node.expression : node.source;
    if (!isNode(source) || source.type !== 'Literal' || typeof source.value !== 'string') continue;
    const specifier = source.value;
    const target = specifier.startsWith('.')
      ? path.posix.join(path.posix.dirname(file), specifier).replace(/\.(m?)js$/, '.$1ts')
      : undefined;
    const isType = node.type === 'ImportDeclaration' && node.importKind === 'type';
    found.push({ file, specifier, target, isDynamic: node.type === 'ImportExpression', isType });
  }
  return found;
}

const importsOfAll = new WeakMap<Sources, Import[]>();

/** Cached per tree: parsing all files takes a second, and every rule needs the imports. */
function allImports(sources: Sources): Import[] {
  const cached = importsOfAll.get(sources);
  if (cached) return cached;
  const found = Object.entries(sources).flatMap(([file, text]) => importsOf(file, text));
  importsOfAll.set(sources, found);
  return found;
}

/** Imports that violate the order of folders, and folders that are missing in the order. */
export function directionErrors(sources: Sources): string[] {
  const rowOf = (folder: string): number => layers.findIndex((row) => row.includes(folder));
  const inFolders = Object.keys(sources).filter((file) => !isRootEntry(file));
  const unknown = [...new Set(inFolders.map(folderOf))].filter((folder) => rowOf(folder) < 0);
  const wrong = allImports(sources).flatMap(({ file, specifier, target }) => {
    if (target === undefined || isRootEntry(file)) return [];
    const what = `${file} imports ${specifier}`;
    if (!target.startsWith('src/')) return isTest(file) ? [] : [`${what}: outside src`];
    if (isRootEntry(target)) return [`${what}: an entry file, which is for users of the package`];
    if (exceptions.some(([from, to]) => file.startsWith(from) && target.startsWith(to))) return [];
    const [from, to] = [folderOf(file), folderOf(target)];
    return from === to || rowOf(to) < rowOf(from) ? [] : [`${what}: ${to} is not above ${from}`];
  });
  return [...unknown.map((folder) => `src/${folder} is missing in the table of layers`), ...wrong];
}

/** Imports of files that do not exist. The other checks do not see them. */
export function danglingErrors(sources: Sources): string[] {
  return allImports(sources)
    .filter(({ target }) => target?.startsWith('src/') && !(target in sources))
    .map(({ file, specifier }) => `${file} imports ${specifier}: there is no such file`);
}

/** Each cycle once, as the path through it. */
export function cycleErrors(sources: Sources): string[] {
  const next = new Map(Object.keys(sources).map((file) => [file, new Set<string>()]));
  for (const { file, target } of allImports(sources)) if (target !== undefined) next.get(file)?.add(target);
  const done = new Set<string>();
  const cycles: string[] = [];
  const visit = (file: string, trail: readonly string[]): void => {
    const at = trail.indexOf(file);
    if (at >= 0) {
      cycles.push([...trail.slice(at), file].join(' -> '));
      return;
    }
    if (done.has(file)) return;
    for (const each of next.get(file) ?? []) visit(each, [...trail, file]);
    done.add(file);
  };
  for (const file of next.keys()) visit(file, []);
  return cycles;
}

/** Files whose declarations a user of the package compiles: those that an entry reaches without `import()`. */
function reachedBy(entries: readonly string[], sources: Sources): ReadonlySet<string> {
  const found = new Set(entries);
  for (const file of found)
    for (const { target, isDynamic } of allImports(sources).filter((each) => each.file === file))
      if (target !== undefined && !isDynamic) found.add(target);
  return found;
}

/**
 * Packages that sources use but that are not installed with Hostler. Optional packages must be loaded by `import()`. Their types
 * may be used only where no declaration of an entry contains them.
 */
export function packageErrors(
  sources: Sources,
  dependencies: readonly string[],
  optional: readonly string[] = [],
  entries: readonly string[] = Object.keys(sources),
): string[] {
  const allowed = new Set(dependencies);
  const published = reachedBy(entries, sources);
  return allImports(sources).flatMap(({ file, specifier, target, isDynamic, isType }) => {
    if (target !== undefined || isTest(file)) return [];
    if (specifier.startsWith('node:')) {
      return builtinModules.includes(specifier.slice(5)) ? [] : [`${file} imports ${specifier}: no such builtin`];
    }
    if (builtinModules.includes(specifier)) return [`${file} imports ${specifier}: write node:${specifier}`];
    if (optional.includes(packageOf(specifier))) {
      return isDynamic || (isType && !published.has(file))
        ? []
        : [`${file} imports ${specifier}: optional, so load it with import() where it is asked for`];
    }
    return allowed.has(packageOf(specifier)) ? [] : [`${file} imports ${specifier}: not in dependencies`];
  });
}

/** Entry files only re-export names, each one explicitly, so that the public API can be read in one place. */
export function entryErrors(sources: Sources): string[] {
  return Object.entries(sources).flatMap(([file, text]) => {
    if (!isRootEntry(file) || isTest(file)) return [];
    const statements = (parse(text).body as Node[]).filter(
      (node) => !(node.type === 'ExportNamedDeclaration' && isNode(node.source)),
    );
    return statements.map((node) => `${file} holds a ${node.type}: only \`export { name } from\` belongs there`);
  });
}
