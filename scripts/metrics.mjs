/**
 * `node scripts/metrics.mjs [git ref]`: size and structure of src/ without tests. With a ref, compares that commit with the working
 * tree.
 * An export has one importer when exactly one other file of src/ imports it by name.
 * `node scripts/metrics.mjs --path`: the files that one tools/call uses (call-path.mjs), with their functions; needs dist/.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { parseAst } from 'rolldown/parseAst';

const root = fileURLToPath(new URL('..', import.meta.url));
const isSource = (file) => file.endsWith('.ts') && !file.endsWith('.test.ts');

/** Maps the path of each source file to its text. */
function workingTree() {
  const names = readdirSync(path.join(root, 'src'), { recursive: true }).map((name) => `src/${name}`);
  return new Map(names.filter(isSource).map((name) => [name, readFileSync(path.join(root, name), 'utf8')]));
}

function commit(ref) {
  const git = (args, input) => execFileSync('git', args, { cwd: root, input, maxBuffer: 2 ** 28 });
  const names = git(['ls-tree', '-r', '--name-only', ref, 'src']).toString().split('\n').filter(isSource);
  const packed = git(['cat-file', '--batch'], names.map((name) => `${ref}:${name}\n`).join(''));
  const files = new Map();
  let at = 0;
  for (const name of names) {
    const head = packed.indexOf('\n', at);
    const size = Number(packed.toString('utf8', at, head).split(' ')[2]);
    files.set(name, packed.toString('utf8', head + 1, head + 1 + size));
    at = head + 1 + size + 1;
  }
  return files;
}

const isNode = (value) => typeof value === 'object' && value !== null && typeof value.type === 'string';

function* nodesOf(node) {
  yield node;
  for (const value of Object.values(node))
    for (const each of Array.isArray(value) ? value : [value]) if (isNode(each)) yield* nodesOf(each);
}

const linesIn = (text) => text.split('\n').length - 1;

/** Imports, exports and function lengths of one file. */
function read(file, text) {
  const found = { lines: linesIn(text), functions: [], imports: new Map(), exports: [] };
  const target = ({ value }) =>
    value.startsWith('.') ? path.posix.join(path.posix.dirname(file), value).replace(/\.js$/, '.ts') : undefined;
  const use = (source, names) => {
    const to = target(source);
    if (to !== undefined) found.imports.set(to, [...(found.imports.get(to) ?? []), ...names]);
  };
  for (const node of nodesOf(parseAst(text, { lang: 'ts' }))) {
    if (/^(FunctionDeclaration|FunctionExpression|ArrowFunctionExpression)$/.test(node.type) && node.body)
      found.functions.push(linesIn(text.slice(node.start, node.end)) + 1);
    if (node.type === 'ImportDeclaration')
      use(
        node.source,
        node.specifiers.map(({ type, imported }) => (type === 'ImportSpecifier' ? imported.name : '*')),
      );
    if (node.type === 'ImportExpression' && node.source.type === 'Literal') use(node.source, ['*']);
    if (node.type === 'ExportAllDeclaration') use(node.source, ['*']);
    if (node.type !== 'ExportNamedDeclaration') continue;
    if (node.source)
      use(
        node.source,
        node.specifiers.map(({ local }) => local.name),
      );
    else found.exports.push(...exportedBy(node));
  }
  return found;
}

function exportedBy({ declaration, specifiers }) {
  if (!declaration) return specifiers.map(({ exported }) => exported.name);
  const named = declaration.declarations ?? [declaration];
  return named.flatMap(({ id }) =>
    id.type === 'ObjectPattern' ? id.properties.map(({ key }) => key.name) : [id.name],
  );
}

/** Import cycles: groups of files that import each other (Tarjan). */
function cycles(files) {
  const [index, low, stack, found] = [new Map(), new Map(), [], []];
  const visit = (file) => {
    index.set(file, index.size);
    low.set(file, index.get(file));
    stack.push(file);
    for (const to of files.get(file).imports.keys()) {
      if (!files.has(to)) continue;
      if (!index.has(to)) visit(to);
      if (stack.includes(to)) low.set(file, Math.min(low.get(file), low.get(to)));
    }
    if (low.get(file) !== index.get(file)) return;
    const group = stack.splice(stack.indexOf(file));
    if (group.length > 1) found.push(group);
  };
  for (const file of files.keys()) if (!index.has(file)) visit(file);
  return found;
}

const at = (numbers, share) => numbers.toSorted((a, b) => a - b)[Math.floor((numbers.length - 1) * share)] ?? 0;
const mean = (numbers) => (numbers.reduce((sum, each) => sum + each, 0) / numbers.length).toFixed(1);

/** Maps the name of each metric to its figure. */
function metricsOf(files) {
  const facts = [...files.values()];
  const lines = facts.map((each) => each.lines);
  const functions = facts.flatMap((each) => each.functions);
  const fanOut = facts.map(({ imports }) => imports.size);
  const users = ([file, { exports }]) =>
    exports.map((name) => {
      const uses = ({ imports }) => imports.get(file)?.some((used) => used === name || used === '*');
      return [...files.values()].filter(uses).length;
    });
  const importers = [...files].flatMap(users);
  const importersOf = (file) => [...files.values()].filter(({ imports }) => imports.has(file)).length;
  return {
    lines: lines.reduce((sum, each) => sum + each, 0),
    files: files.size,
    'file lines, median / p95 / max': `${at(lines, 0.5)} / ${at(lines, 0.95)} / ${Math.max(...lines)}`,
    'files over 400 lines': lines.filter((each) => each > 400).length,
    'files under 40 lines': lines.filter((each) => each < 40).length,
    'files with one importer': [...files.keys()].filter((file) => importersOf(file) === 1).length,
    functions: functions.length,
    'function lines, median / p95 / max': `${at(functions, 0.5)} / ${at(functions, 0.95)} / ${Math.max(...functions)}`,
    'functions over 70 lines': functions.filter((each) => each > 70).length,
    'fan-out, mean / p95 / max': `${mean(fanOut)} / ${at(fanOut, 0.95)} / ${Math.max(...fanOut)}`,
    exports: importers.length,
    'exports with one importer': importers.filter((count) => count === 1).length,
    'exports that no other file imports': importers.filter((count) => count === 0).length,
    'import cycles': cycles(files).length,
  };
}

function countBy(keys) {
  const counts = new Map();
  for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
  return counts;
}

/** The folder whose files are counted together. */
const folderOf = (file) => path.posix.dirname(file);

function print(rows) {
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => String(row[column] ?? '').length)));
  for (const row of rows)
    console.log(
      row
        .map((cell, i) => (i === 0 ? String(cell).padEnd(widths[0]) : String(cell ?? '-').padStart(widths[i])))
        .join('  '),
    );
}

const [ref] = process.argv.slice(2);
if (ref === '--path') {
  const { callPath } = await import('./call-path.mjs');
  const path = [...(await callPath())].sort(([a], [b]) => a.localeCompare(b));
  for (const [file, names] of path) console.log(`${file}: ${[...new Set(names)].join(', ')}`);
  console.log(`${path.length} files, ${path.reduce((sum, [, names]) => sum + names.length, 0)} functions`);
  process.exit(0);
}
const trees = [...(ref === undefined ? [] : [[ref, commit(ref)]]), ['now', workingTree()]].map(([name, texts]) => [
  name,
  new Map([...texts].map(([file, text]) => [file, read(file, text)])),
]);
const columns = trees.map(([name, files]) => [name, metricsOf(files)]);
print([
  ['', ...columns.map(([name]) => name)],
  ...Object.keys(columns[0][1]).map((row) => [row, ...columns.map(([, metrics]) => metrics[row])]),
]);

const folders = trees.map(([, files]) => countBy([...files.keys()].map(folderOf)));
const names = [...new Set(folders.flatMap((counts) => [...counts.keys()]))].sort();
console.log();
print([
  ['files per folder', ...trees.map(([name]) => name)],
  ...names.map((name) => [name, ...folders.map((counts) => counts.get(name) ?? 0)]),
]);

const [, files] = trees.at(-1);
const largest = [...files].sort(([, a], [, b]) => b.lines - a.lines).slice(0, 10);
console.log();
print([['largest files', 'lines'], ...largest.map(([file, { lines }]) => [file, lines])]);
for (const group of cycles(files)) console.log(`cycle: ${group.join(' -> ')}`);
