/**
 * dist/index.js and the other entry points of the package → the same files again, with all that they import in a few chunks in
 * dist/lib/: to load hundreds of modules costs more than to run them, and a bundler of somebody else finds nothing to stumble over.
 * Not here: compiling (bootstrap.mjs), the bundles of the command line (bundle.mjs).
 *
 * Invariants: everything is an ES module without top-level await, so that `require('hostler')` works too; of packages only libsql
 * stays outside, which is native, and it is imported where it is needed; all entry points share one copy of each module; no code
 * looks for a file beside itself.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import { esmExternalRequirePlugin } from 'rolldown/plugins';
import { licencesOf } from './licences.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const dist = path.join(root, 'dist');
const entries = ['index', 'testing', 'gateway/index', 'broker/index', 'broker/worker/index'];

const builtins = [/^node:(?!sqlite$)/, ...builtinModules];
const isBuiltin = (id) => id.startsWith('node:') || builtinModules.includes(id);
const undici = (file) => JSON.stringify(path.join(root, 'node_modules/undici/lib', file));

/** What takes the place of a module: of one of ours by its path below dist/, of a package by its name. */
const replacements = new Map([
  ['transports/http/require-undici.js', 'export const requireUndici = () => undefined;'],
  ['catalog/store/require-libsql.js', 'export const requireLibsql = () => undefined;'],
  // What Hostler uses of it: all of it is three times as much.
  [
    'undici',
    `export { default as Pool } from ${undici('dispatcher/pool.js')};\n` +
      `export { default as buildConnector } from ${undici('core/connect.js')};`,
  ],
  // undici asks for it only where it is used, but an import asks at once, and Node 20 does not have it.
  ['node:sqlite', "throw new Error('node:sqlite is not used');"],
  // Native parts that ws can do without.
  ...['bufferutil', 'utf-8-validate'].map((name) => [name, `throw new Error('${name} is not installed');`]),
]);

function replacing(more = []) {
  const all = new Map([...replacements, ...more]);
  const marked = (name) => `\0replaced:${name}`;
  return {
    name: 'replacements',
    resolveId(id, importer) {
      if (all.has(id)) return marked(id);
      if (!id.startsWith('.') || importer === undefined || importer.startsWith('\0')) return null;
      const file = path
        .relative(dist, path.resolve(path.dirname(importer), id))
        .split(path.sep)
        .join('/');
      return all.has(file) ? marked(file) : null;
    },
    load: (id) => (id.startsWith('\0replaced:') ? all.get(id.slice('\0replaced:'.length)) : null),
  };
}

const common = {
  cwd: root,
  platform: 'node',
  // Of what has both, the modules: the other form is put together while it runs.
  resolve: { mainFields: ['module', 'main'] },
};

/** The code of the store's thread, as one script that is started from a text. */
async function storeThread() {
  const bundle = await rolldown({
    ...common,
    input: path.join(dist, 'broker/store/store-thread.js'),
    external: (id) => isBuiltin(id) || id === 'libsql',
    plugins: [replacing()],
  });
  const { output } = await bundle.generate({ format: 'cjs', codeSplitting: false, comments: false });
  await bundle.close();
  if (output.length !== 1) throw new Error(`the thread became ${output.map((each) => each.fileName).join(', ')}`);
  return output[0].code;
}

/**
 * A script that is started from a text looks for packages in the working folder. libsql is found from where Hostler is, or else from
 * the program that holds it.
 */
const storeThreadStart = (code) => `
import { createRequire } from 'node:module';
const code = ${JSON.stringify(code)};
const bases = () => [import.meta.url, process.argv[1], process.cwd() + '/'].filter((base) => typeof base === 'string');
function baseOf(name) {
  for (const base of bases()) {
    try {
      createRequire(base).resolve(name);
      return base;
    } catch {}
  }
  return process.cwd() + '/';
}
export const storeThreadStart = () => ({
  script: '(function (require) {' + code + '\\n})(require("node:module").createRequire(' + JSON.stringify(baseOf('libsql')) + '))',
  isCode: true,
});
`;

const bundle = await rolldown({
  ...common,
  input: Object.fromEntries(entries.map((name) => [name, path.join(dist, `${name}.js`)])),
  external: (id) => id === 'libsql',
  plugins: [
    replacing([['broker/store/store-thread-start.js', storeThreadStart(await storeThread())]]),
    // A package in the older form asks for parts of Node by `require`, which a module does not have.
    esmExternalRequirePlugin({ external: builtins }),
  ],
});
const { output } = await bundle.generate({
  format: 'esm',
  entryFileNames: '[name].js',
  chunkFileNames: 'lib/[name]-[hash].js',
  comments: { legal: true, annotation: true, jsdoc: false },
});
await bundle.close();

for (const chunk of output) {
  const file = path.join(dist, chunk.fileName);
  if (/\bcreateRequire\(import\.meta\.url\)\("/.test(chunk.code)) throw new Error(`${chunk.fileName} requires a file`);
  // What was compiled from the source that is in the bundle now.
  if (chunk.isEntry) rmSync(`${file}.map`, { force: true });
  writeOut(file, chunk.code);
}
const modules = output.flatMap((chunk) => Object.keys(chunk.modules ?? {}));
writeOut(path.join(dist, 'lib/LICENSES.txt'), licencesOf(root, modules));

function writeOut(file, text) {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
}
