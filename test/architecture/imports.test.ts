import { describe, expect, test } from 'vitest';
import { cycleErrors, danglingErrors, directionErrors, entryErrors, importsOf, packageErrors } from './import-rules.js';
import { filesBelow, readJson, readText } from './tree.js';

const sources = Object.fromEntries(
  filesBelow('src')
    .filter((file) => file.endsWith('.ts'))
    .map((file) => [file, readText(file)]),
);
const { dependencies = {}, peerDependenciesMeta = {} } = readJson('package.json') as {
  dependencies?: Record<string, string>;
  peerDependenciesMeta?: Record<string, { optional?: boolean }>;
};
const optional = Object.keys(peerDependenciesMeta).filter((name) => peerDependenciesMeta[name]?.optional === true);

/** The entry points of package.json. */
const entries = ['index', 'testing', 'gateway/index', 'broker/index', 'broker/worker/index'].map(
  (name) => `src/${name}.ts`,
);

describe('our sources', () => {
  test('were found', () => {
    expect(Object.keys(sources)).toContain('src/kernel/errors.ts');
  });
  test('import only their own folder and folders above', () => {
    expect(directionErrors(sources)).toEqual([]);
  });
  test('import only files that exist', () => {
    expect(danglingErrors(sources)).toEqual([]);
  });
  test('import each other without a cycle', () => {
    expect(cycleErrors(sources)).toEqual([]);
  });
  test('use no package but builtins and runtime dependencies', () => {
    expect(packageErrors(sources, Object.keys(dependencies), optional, entries)).toEqual([]);
  });
  test('make folders with makeFolders: `recursive` may never return', () => {
    const recursive = /\bmkdir(?:Sync)?\([^;]*\brecursive\b/;
    const found = Object.entries(sources).filter(([file, text]) => !file.endsWith('.test.ts') && recursive.test(text));
    expect(found.map(([file]) => file)).toEqual([]);
  });
  test('have entry files that only re-export names', () => {
    expect(entryErrors(sources)).toEqual([]);
  });
});

describe('the checker', () => {
  test('sees every form of import', () => {
    const text = `
      import a from './a.js';
      import type { B } from '../wire/b.js';
      export { c } from './c.js';
      export type { D } from './d.js';
      export * from './e.js';
      import './f.js';
      const g = await import('./g.js');
      type H = import('./h.js').H;
      import i = require('./i.js');
      const quote = /["'\`]/; // import './comment.js'
      const text = "import './text.js'";
      import { z } from 'zod/v4';
    `;
    expect(importsOf('src/kernel/x.ts', text).map(({ target, specifier }) => target ?? specifier)).toEqual(
      ['a', '../wire/b', 'c', 'd', 'e', 'f', 'g', 'h', 'i']
        .map((name) => (name.startsWith('..') ? 'src/wire/b.ts' : `src/kernel/${name}.ts`))
        .concat('zod/v4'),
    );
  });

  test.each([
    ['a folder may import the ones above', { 'src/wire/a.ts': `import '../kernel/b.js'` }, []],
    ['a folder may import itself', { 'src/wire/a.ts': `import './b.js'` }, []],
    [
      'a folder may not import the ones below',
      { 'src/kernel/a.ts': `import type { B } from '../wire/b.js'` },
      ['src/kernel/a.ts imports ../wire/b.js: wire is not above kernel'],
    ],
    [
      'folders of one row ignore each other',
      { 'src/gateway/a.ts': `import '../broker/b.js'` },
      ['src/gateway/a.ts imports ../broker/b.js: broker is not above gateway'],
    ],
    [
      'the worker of the broker may import the gateway',
      { 'src/broker/worker/a.ts': `import '../../gateway/b.js'` },
      [],
    ],
    [
      'every folder is in the table',
      { 'src/utils/a.ts': 'export const a = 1' },
      ['src/utils is missing in the table of layers'],
    ],
    ['an entry file may import any folder', { 'src/index.ts': `export { a } from './cli/a.js'` }, []],
    [
      'no folder imports an entry file',
      { 'src/cli/a.ts': `import '../index.js'` },
      ['src/cli/a.ts imports ../index.js: an entry file, which is for users of the package'],
    ],
    [
      'sources stay inside src',
      { 'src/cli/a.ts': `import '../../test/b.js'`, 'src/cli/a.test.ts': `import '../../test/b.js'` },
      ['src/cli/a.ts imports ../../test/b.js: outside src'],
    ],
  ])('%s', (_name, files, errors) => {
    expect(directionErrors(files as Record<string, string>)).toEqual(errors);
  });

  test('names the path of a cycle, even through types', () => {
    const files = {
      'src/wire/a.ts': `import './b.js'`,
      'src/wire/b.ts': `import type { C } from './c.js'`,
      'src/wire/c.ts': `export * from './b.js'; import './d.js'`,
      'src/wire/d.ts': '',
    };
    expect(cycleErrors(files)).toEqual(['src/wire/b.ts -> src/wire/c.ts -> src/wire/b.ts']);
    expect(cycleErrors({ ...files, 'src/wire/c.ts': '' })).toEqual([]);
  });

  test('refuses a file that does not exist', () => {
    expect(danglingErrors({ 'src/wire/a.ts': `import './b.js'` })).toEqual([
      'src/wire/a.ts imports ./b.js: there is no such file',
    ]);
  });

  test('refuses development dependencies outside of tests', () => {
    const files = {
      'src/wire/a.ts': `import 'zod/v4'; import '@scope/used/deep'; import 'node:fs/promises'`,
      'src/wire/a.test.ts': `import 'vitest'`,
      'src/wire/b.ts': `import 'vitest'; import 'fs'; import 'node:nothing'; import '@scope/other'`,
    };
    expect(packageErrors(files, ['zod', '@scope/used'])).toEqual([
      'src/wire/b.ts imports vitest: not in dependencies',
      'src/wire/b.ts imports fs: write node:fs',
      'src/wire/b.ts imports node:nothing: no such builtin',
      'src/wire/b.ts imports @scope/other: not in dependencies',
    ]);
  });

  test('allows an optional package to be loaded on demand, but not imported or named in types', () => {
    const files = {
      'src/host/a.ts': `const load = () => import('@scope/may-be')`,
      'src/host/b.ts': `import { x } from '@scope/may-be'; type Y = import('@scope/may-be').Y`,
    };
    const error = 'src/host/b.ts imports @scope/may-be: optional, so load it with import() where it is asked for';
    expect(packageErrors(files, [], ['@scope/may-be'])).toEqual([error, error]);
    const typed = {
      'src/host/a.ts': `import { b } from './b.js'; const load = () => import('./c.js')`,
      'src/host/b.ts': `import type { X } from '@scope/may-be'`,
      'src/host/c.ts': `import type { X } from '@scope/may-be'; import './d.js'`,
      'src/host/d.ts': `import { X } from '@scope/may-be'`,
    };
    const names = packageErrors(typed, [], ['@scope/may-be'], ['src/host/a.ts']).map((each) => each.split(' ')[0]);
    expect(names).toEqual(['src/host/b.ts', 'src/host/d.ts']);
  });

  test('refuses entry files that do more than re-export names', () => {
    const files = {
      'src/index.ts': `export { a, type B } from './host/a.js'`,
      'src/testing.ts': `export * from './kernel/a.js'; export const b = 1; import './kernel/c.js'`,
    };
    expect(entryErrors(files)).toEqual(
      ['ExportAllDeclaration', 'ExportNamedDeclaration', 'ImportDeclaration'].map(
        (type) => `src/testing.ts holds a ${type}: only \`export { name } from\` belongs there`,
      ),
    );
  });
});
