/**
 * Bundles dist/index.js and the other entry points of the package in place. What they import goes into a few chunks in dist/lib/.
 * Loading hundreds of modules would take longer than running them, and bundlers of users need not resolve our dependencies.
 * Not here: compiling (bootstrap.mjs), the bundles of the command line (bundle.mjs).
 *
 * Invariants: ES modules without top-level await, so that `require('hostler')` works too. One package, libsql, is native: it
 * stays outside and is imported on demand. All entry points share one copy of each module. No code reads a file beside it.
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

/** Texts that replace modules. The key of our own module is its path below dist/, that of a package is its name. */
const replacements = new Map([
  ['transports/http/require-undici.js', 'export const requireUndici = () => undefined;'],
  ['catalog/store/require-libsql.js', 'export const requireLibsql = () => undefined;'],
  // Only the parts that Hostler uses: all of undici would be three times as large.
  [
    'undici',
    `export { default as Pool } from ${undici('dispatcher/pool.js')};\n` +
      `export { default as buildConnector } from ${undici('core/connect.js')};`,
  ],
  // undici requires this module on demand. In the bundle it would be imported at the start, and Node 20 lacks it.
  ['node:sqlite', "throw new Error('node:sqlite is not used');"],
  // Optional native parts of ws.
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
  // Prefer ES modules, which are bundled flat; CommonJS is wrapped.
  resolve: { mainFields: ['module', 'main'] },
};

/** The code of the thread of the call log as one script. The thread is started from this text, not from a file. */
async function logThread() {
  const bundle = await rolldown({
    ...common,
    input: path.join(dist, 'broker/calls/sqlite/log-thread.js'),
    external: (id) => isBuiltin(id) || id === 'libsql',
    plugins: [replacing()],
  });
  const { output } = await bundle.generate({ format: 'cjs', codeSplitting: false, comments: false });
  await bundle.close();
  if (output.length !== 1) throw new Error(`the thread became ${output.map((each) => each.fileName).join(', ')}`);
  return output[0].code;
}

/**
 * The module that starts the thread. Node would resolve packages of a script without a file in the working folder. So libsql is
 * resolved from Hostler, or else from the program that embeds Hostler.
 */
const logThreadStart = (code) => `
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
export const logThreadStart = () => ({
  script: '(function (require) {' + code + '\\n})(require("node:module").createRequire(' + JSON.stringify(baseOf('libsql')) + '))',
  isCode: true,
});
`;

const bundle = await rolldown({
  ...common,
  input: Object.fromEntries(entries.map((name) => [name, path.join(dist, `${name}.js`)])),
  external: (id) => id === 'libsql',
  plugins: [
    replacing([['broker/calls/sqlite/log-thread-start.js', logThreadStart(await logThread())]]),
    // CommonJS packages require builtins of Node; an ES module has no `require`.
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
  // The source map belongs to the compiled file, which the bundle has replaced.
  if (chunk.isEntry) rmSync(`${file}.map`, { force: true });
  writeOut(file, chunk.code);
}
const modules = output.flatMap((chunk) => Object.keys(chunk.modules ?? {}));
writeOut(path.join(dist, 'lib/LICENSES.txt'), licencesOf(root, modules));

function writeOut(file, text) {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
}
