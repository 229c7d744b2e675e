/**
 * Makes three files of dist/cli/:
 * - up.bundle.cjs from up/run-up.js with all its imports, because loading hundreds of modules takes longer than the rest of a start.
 * - main.cjs, the command itself, from main.js and up.js. It is CommonJS, because Node's ES module loader takes longer than the code
 *   of the command.
 * - relay.bundle.cjs from relay/run-relay.js with all its imports.
 * The other commands stay separate files.
 * Not here: compiling (bootstrap.mjs), loading the bundle (src/cli/up.ts).
 *
 * Invariants: native packages, and those loaded on demand, stay outside; the bundle holds the licences of the packages in it.
 */
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { rolldown } from 'rolldown';
import { licenceOf } from './licences.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const inside = ['zod', 'jsonc-parser', 'libsql'];

const isOutside = (id) => !id.startsWith('.') && !path.isAbsolute(id);

/** Node modules that are loaded on first use: no command needs all of them, and each takes 0.3 to 6 ms. */
const lateModules = new Set([
  'https',
  'tls',
  'child_process',
  'readline',
  'dns',
  'fs/promises',
  'async_hooks',
  'os',
  'module',
  'vm',
  'crypto',
  'v8',
]);

function lateBuiltins(code) {
  const load = /^let (node_\w+) = (require\("node:([\w/]+)"\));\n(?:\1 = (__toESM)\(\1, 1\);\n)?/gm;
  const late = [...code.matchAll(load)].filter(([, , , module]) => lateModules.has(module));
  let result = code;
  for (const [line, name, load, , wrap] of late) {
    const loaded = wrap === undefined ? load : `__toESM(${load}, 1)`;
    result = result.replace(line, () => '').replace(new RegExp(`(?<![\\w$.])${name}(?=\\.)`, 'g'), `(${name}())`);
    if (new RegExp(`(?<![\\w$.])${name}(?!\\()\\b`).test(result)) throw new Error(`${name} is used as a whole`);
    // A function is hoisted, so modules above may use it.
    result += `\nfunction ${name}() {\n\treturn ${name}.loaded ??= ${loaded};\n}\n`;
  }
  return result;
}

/** The bundled text of dist/cli/`name`. */
async function bundled(name, format, options) {
  const bundle = await rolldown({
    input: path.join(root, 'dist/cli', name),
    cwd: root,
    platform: 'node',
    // Prefer ES modules, which are bundled flat; CommonJS is wrapped.
    resolve: { mainFields: ['module', 'main'] },
    ...options,
  });
  const { output } = await bundle.generate({ format, codeSplitting: false, comments: false });
  await bundle.close();
  if (output.length !== 1) throw new Error(`${name} became ${output.map((each) => each.fileName).join(', ')}`);
  return lateBuiltins(output[0].code);
}

/**
 * libsql uses two packages and the file system to find its native part for this machine. On glibc Linux the bundle requires that
 * part directly; elsewhere libsql searches for it as usual, from its installed location. With this and libsql in the bundle, the
 * first list comes 11 ms (6 %) earlier on Node 20: after 2.8 times the start of Node itself instead of 3.0.
 */
const nativePart = {
  name: 'the native part of libsql',
  transform: {
    filter: { id: /node_modules\/libsql\/index\.js$/ },
    handler(code) {
      const asks = /const \{[^}]*\} = require\("@neon-rs\/load"\);\nconst \{[^}]*\} = require\("detect-libc"\);\n/;
      const [requires] = asks.exec(code) ?? [];
      const call = '} = requireNative();';
      const part = /require\((`@libsql\/\$\{target\}`)\)/;
      if (requires === undefined || !code.includes(call) || !part.test(code))
        throw new Error('libsql loads its native part in another way than this script expects: adapt nativePart');
      return code
        .replace(requires, '')
        .replace(
          'function requireNative() {\n',
          () => `${quickly}function requireNative() {\n${elsewhere}${requires.replaceAll('require(', 'own(')}`,
        )
        .replace(part, 'own($1)')
        .replace(call, '} = quickNative() ?? requireNative();');
    },
  },
};
const quickly = `
function quickNative() {
  const { platform, arch } = process;
  const machine = { x64: 'x86_64', arm64: 'aarch64' }[arch];
  if (platform !== 'linux' || machine === undefined || process.env.LIBSQL_JS_DEV) return undefined;
  try {
    require('node:fs').accessSync('/lib/ld-musl-' + machine + '.so.1');
  } catch {
    try {
      return require('@libsql/linux-' + arch + '-gnu');
    } catch {}
  }
  return undefined;
}
`;
const elsewhere = "const own = require('node:module').createRequire(require.resolve('libsql'));\n";

/** Puts libsql into the bundle, because every start needs it. */
const ownLibsql = {
  name: 'libsql inside',
  load: {
    filter: { id: /\/dist\/catalog\/store\/require-libsql\.js$/ },
    handler: () => "import Database from 'libsql';\nexport const requireLibsql = () => Database;",
  },
};

const up = await bundled('up/run-up.js', 'cjs', {
  external: (id) => isOutside(id) && !inside.includes(id.split('/')[0]),
  plugins: [ownLibsql, nativePart],
});
/** Small and separate, because every client loads it: each client has its own relay. */
const relay = await bundled('relay/run-relay.js', 'cjs', { external: isOutside });
const main = await bundled('main.js', 'cjs', {
  external: isOutside,
  plugins: [
    {
      name: 'other commands stay outside',
      resolveDynamicImport: (id) => (id === './up.js' || isOutside(id) ? undefined : { id, external: true }),
    },
  ],
});

const licences = inside.map((name) => `/*\n${name}\n\n${licenceOf(root, name).replaceAll('*/', '* /')}\n*/`);
/** V8 stores an ASCII source with one byte per character. Other characters occur only in strings, where an escape is equivalent. */
const ascii = (code) => code.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
/** A bundle is one function, after a line with its digest (src/cli/process/compile-cache.ts). */
function writeBundle(name, code) {
  const text = ascii(`(function (exports, require, module, __filename, __dirname) {\n${code}\n})\n`);
  const digest = createHash('sha256').update(text).digest('hex');
  writeFileSync(path.join(root, 'dist/cli', name), `// ${digest}\n${text}`);
}
writeBundle('up.bundle.cjs', `${up}\n${licences.join('\n')}`);
writeBundle('relay.bundle.cjs', relay);
// The file starts with a shell script, so that the command reaps orphans as PID 1 of a container.
const { COMMAND_HEADER } = await import(pathToFileURL(path.join(root, 'dist/cli/process/subreaper.js')).href);
writeFileSync(
  path.join(root, 'dist/cli/main.cjs'),
  main.replace(/^#!.*\n/, () => COMMAND_HEADER),
  { mode: 0o755 },
);
writeFileSync(path.join(root, 'dist/cli/main.js'), "#!/usr/bin/env node\nimport './main.cjs';\n");
