import { describe, expect, test } from 'vitest';
import {
  entryPointErrors,
  footprintErrors,
  type Lockfile,
  lifecycleErrors,
  type Manifest,
  productionPackages,
} from './package-rules.js';
import { filesBelow, readJson } from './tree.js';

const manifest = readJson('package.json') as Manifest;
const lockfile = readJson('package-lock.json') as Lockfile;
const compiled = filesBelow('src').filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'));

describe('our package', () => {
  test('points only at files that the build makes', () => {
    expect(entryPointErrors(manifest, new Set(compiled))).toEqual([]);
  });
  test('runs no script when it is installed', () => {
    expect(lifecycleErrors(manifest)).toEqual([]);
  });
  test('has few production packages, none with an install script', () => {
    expect(productionPackages(lockfile).length).toBeGreaterThan(0);
    expect(footprintErrors(lockfile)).toEqual([]);
  });
});

describe('the checker', () => {
  test('finds entry points without a source', () => {
    const sample = {
      bin: { a: 'dist/cli/main.js', b: 'dist/cli/gone.js' },
      exports: {
        '.': { types: './dist/index.d.ts', default: './dist/index.mjs' },
        './src': './src/index.ts',
        './package.json': './package.json',
      },
    };
    const errors = entryPointErrors(sample, new Set(['src/cli/main.ts', 'src/index.ts']));
    expect(errors).toEqual(
      ['dist/cli/gone.js', './dist/index.mjs', './src/index.ts'].map((e) => `${e}: the build makes no such file`),
    );
  });

  test('finds install scripts of this package and of production packages', () => {
    expect(lifecycleErrors({ scripts: { test: 'x', postinstall: 'x' } })).toEqual(['script postinstall']);
    const packages = {
      '': { hasInstallScript: true },
      'node_modules/a': { hasInstallScript: true },
      'node_modules/b': { hasInstallScript: true, dev: true },
    };
    expect(footprintErrors({ packages })).toEqual(['node_modules/a has an install script']);
  });

  test('counts production packages, also indirect ones', () => {
    const some = (count: number): Lockfile => ({
      packages: Object.fromEntries(Array.from({ length: count }, (_, at) => [`node_modules/p${at}`, {}])),
    });
    expect(footprintErrors(some(15))).toEqual([]);
    expect(footprintErrors(some(16))[0]).toMatch(/^16 packages: node_modules\/p0, /);
    const builds = {
      'node_modules/x-linux': { optional: true, os: ['linux'] },
      'node_modules/x-darwin': { optional: true, os: ['darwin'] },
    };
    expect(footprintErrors({ packages: { ...some(14).packages, ...builds } })).toEqual([]);
    expect(footprintErrors({ packages: { ...some(15).packages, ...builds } })).toHaveLength(1);
  });
});
