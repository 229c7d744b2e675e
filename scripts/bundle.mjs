/**
 * dist/cli/up/run-up.js and all that it imports → dist/cli/up.bundle.js: one script, so that `hostler up` starts without asking the
 * file system for hundreds of modules. A function of `exports`, `require`, `module` and its own name, for src/cli/kept-code.ts.
 * dist/cli/main.js and what leads there → dist/cli/main.cjs, which is what is started: Node's loader of modules takes longer than
 * all that is in it. The other commands stay where they are.
 * Not here: compiling (bootstrap.mjs), running it.
 *
 * Invariants: what is native, or is loaded only when it is needed, stays outside; the licences of what is inside are in it; the
 * first line names its content.
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

/** The text of the one file that the command's file `name` becomes. */
async function bundled(name, format, options) {
  const bundle = await rolldown({
    input: path.join(root, 'dist/cli', name),
    cwd: root,
    platform: 'node',
    // Of what has both, the modules: the other form is put together while it runs.
    resolve: { mainFields: ['module', 'main'] },
    ...options,
  });
  const { output } = await bundle.generate({ format, codeSplitting: false, comments: false });
  await bundle.close();
  if (output.length !== 1) throw new Error(`${name} became ${output.map((each) => each.fileName).join(', ')}`);
  return output[0].code;
}

/**
 * libsql asks two packages and the file system which of its native parts is for this machine. Where there is but one answer the
 * part is loaded at once; elsewhere it asks as ever, from where it is installed.
 */
const nativePart = {
  name: 'the native part of libsql',
  transform: {
    filter: { id: /node_modules\/libsql\/index\.js$/ },
    handler(code) {
      const asks = /const \{[^}]*\} = require\("@neon-rs\/load"\);\nconst \{[^}]*\} = require\("detect-libc"\);\n/;
      const [words] = asks.exec(code) ?? [];
      const call = '} = requireNative();';
      const part = /require\((`@libsql\/\$\{target\}`)\)/;
      if (words === undefined || !code.includes(call) || !part.test(code))
        throw new Error('libsql looks for its native part in another way');
      return code
        .replace(words, '')
        .replace(
          'function requireNative() {\n',
          () => `${quickly}function requireNative() {\n${elsewhere}${words.replaceAll('require(', 'own(')}`,
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

/** libsql is part of it: every start needs it. */
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
/** One byte per character is read faster and takes half the room. Where such a character may stand, its escape may. */
const ascii = (code) => code.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
const text = ascii(`(function (exports, require, module, __filename) {\n${up}\n})\n${licences.join('\n')}\n`);
const mark = createHash('sha256').update(text).digest('hex');
writeFileSync(path.join(root, 'dist/cli/up.bundle.js'), `// ${mark}\n${text}`);
// A shell script first, so that a container that runs the command has a PID 1 that reaps.
const { COMMAND_HEADER } = await import(pathToFileURL(path.join(root, 'dist/cli/process/reaper.js')).href);
writeFileSync(
  path.join(root, 'dist/cli/main.cjs'),
  main.replace(/^#!.*\n/, () => COMMAND_HEADER),
  { mode: 0o755 },
);
writeFileSync(path.join(root, 'dist/cli/main.js'), "#!/usr/bin/env node\nimport './main.cjs';\n");
