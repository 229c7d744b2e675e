/** The built library, which programs import, require and bundle. The lane `packed` tests the bundlers themselves. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { parseAst } from 'vitest/node';
import { readJson, root } from './tree.js';

interface Import {
  readonly specifier: string;
  readonly isDynamic: boolean;
}
type Node = Record<string, unknown> & { type: string };

function* nodesOf(value: unknown): Generator<Node> {
  if (typeof value !== 'object' || value === null) return;
  if ('type' in value && typeof value.type === 'string') yield value as Node;
  for (const each of Object.values(value)) yield* nodesOf(each);
}

const cache = new Map<string, readonly Import[]>();

/** Entry points share most files: each is parsed once. */
function importsOf(file: string): readonly Import[] {
  const found = cache.get(file) ?? parsedImports(file);
  cache.set(file, found);
  return found;
}

function parsedImports(file: string): Import[] {
  const found: Import[] = [];
  for (const { type, source } of nodesOf(parseAst(readFileSync(file, 'utf8')))) {
    const { value } = (source ?? {}) as { value?: unknown };
    if (typeof value === 'string') found.push({ specifier: value, isDynamic: type === 'ImportExpression' });
  }
  return found;
}

/** Every import of the entry point, direct and indirect. */
function allImports(entry: string): Import[] {
  const [seen, found] = [new Set<string>(), [] as Import[]];
  for (const files = [path.join(root, entry)]; files.length > 0; ) {
    const file = files.pop() as string;
    if (seen.has(file)) continue;
    seen.add(file);
    for (const each of importsOf(file)) {
      if (each.specifier.startsWith('.')) files.push(path.resolve(path.dirname(file), each.specifier));
      else found.push(each);
    }
  }
  return found;
}

const { exports, scripts } = readJson('package.json') as {
  readonly exports: Readonly<Record<string, { readonly default: string } | string>>;
  readonly scripts: Readonly<Record<string, string>>;
};
const entries = Object.values(exports).flatMap((entry) => (typeof entry === 'string' ? [] : [entry.default]));

test.each(entries)('E20 %s imports only modules of Node, and libsql where state is stored', (entry) => {
  const packages = allImports(entry).filter(({ specifier }) => !isBuiltin(specifier));
  for (const each of packages) expect(each).toEqual({ specifier: 'libsql', isDynamic: true });
});

test('E20 require of the library works and loads no file of a package; undici is loaded when it connects', async () => {
  const index = JSON.stringify(path.join(root, 'dist/index.js'));
  const program = `const { createHost, Connector, parseServerSpec } = require(${index});
    console.log(typeof createHost, Object.keys(require.cache).filter((file) => file.includes('node_modules')).length);
    const connector = new Connector({ client: { name: 'test', version: '0', capabilities: {} } });
    connector.connect(parseServerSpec({ name: 'a', url: 'http://127.0.0.1:1/' })).catch(({ code, details }) => {
      console.log(code, details.reason);
      return connector.close();
    });`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--no-warnings', '-e', program]);
  expect(stdout).toBe('function 0\nconnect_failed ECONNREFUSED\n');
});

test('E20 the package is built before it is packed', () => {
  expect(scripts.prepack).toBe(scripts.build);
});
