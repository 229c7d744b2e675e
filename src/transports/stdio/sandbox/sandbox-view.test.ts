import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { isHostError } from '../../../kernel/errors.js';
import { type SandboxViewRequest, sandboxView } from './sandbox-view.js';

let folder: string;
const at = (name: string): string => path.join(folder, name);
beforeEach(() => {
  folder = realpathSync(mkdtempSync(path.join(os.tmpdir(), 'hostler-view-')));
  for (const name of ['home/notes', 'home/data', 'home/project/src', 'other', 'installed', 'linked'])
    mkdirSync(at(name), { recursive: true });
  symlinkSync('../home/data', at('linked/data'));
  for (const name of ['home/data/inner.json', 'home/project/hostler.json', 'home/project/a', 'home/project/.b'])
    writeFileSync(at(name), '');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function view(more: Partial<SandboxViewRequest>) {
  const hostPaths = {
    homes: undefined,
    hidden: [at('linked/data'), at('home/data/inner.json'), at('home/project/hostler.json'), at('home/new')],
    userHomes: [at('home')],
    programs: [at('installed/hostler.js')],
  };
  const request = {
    server: 's',
    file: '/usr/bin/env',
    args: [],
    cwd: at('other'),
    declaredCwd: undefined,
    searchPath: '',
  };
  return sandboxView({ ...request, readablePaths: [], writablePaths: [], home: undefined, hostPaths, ...more });
}

/** How each path below the folder is mounted. */
async function mounted(more: Partial<SandboxViewRequest>): Promise<string[]> {
  const args = (await view(more)).mounts.toArgs();
  return args.flatMap((option, i) => {
    const kind = /^--(ro-bind-try|bind|tmpfs|dir|symlink)$/.exec(option)?.[1];
    const where = args[i + (kind === 'tmpfs' || kind === 'dir' ? 1 : 2)];
    return kind !== undefined && where?.startsWith(folder) ? [`${kind} ${path.relative(folder, where)}`] : [];
  });
}

test('no file of the user is visible, and an undeclared working folder is empty', async () => {
  expect(await mounted({})).toEqual(['dir other']);
});

test('a declared working folder is visible and read-only', async () => {
  expect(await mounted({ declaredCwd: at('other') })).toEqual(['ro-bind-try other']);
  expect(await mounted({ declaredCwd: at('other'), writablePaths: ['.'] })).toEqual(['bind other']);
});

test('a folder of Hostler in a readable folder is empty there', async () => {
  rmSync(at('home/project/hostler.json'));
  expect(await mounted({ readablePaths: [at('home')] })).toEqual(['ro-bind-try home', 'dir other', 'tmpfs home/data']);
});

test('the configuration is hidden in its folder', async () => {
  expect(await mounted({ readablePaths: [at('home/project')], cwd: at('other') })).toEqual([
    'dir other',
    'dir home/project',
    'ro-bind-try home/project/.b',
    'ro-bind-try home/project/a',
    'ro-bind-try home/project/src',
  ]);
});

test('a configuration that is being replaced stays hidden', async () => {
  const named = [at('home/project/hostler.json')];
  rmSync(named[0] as string);
  const hostPaths = {
    homes: undefined,
    hidden: named,
    hiddenWhileMissing: named,
    userHomes: [at('home')],
    programs: [],
  };
  expect(await mounted({ readablePaths: [at('home/project')], hostPaths })).not.toContain('ro-bind-try home/project');
});

test('a declared link works in the sandbox as it does outside', async () => {
  symlinkSync('home/notes', at('link'));
  expect(await mounted({ writablePaths: [at('link')] })).toEqual(['symlink link', 'dir other', 'bind home/notes']);
});

test.each<[string, (make: typeof at) => Partial<SandboxViewRequest>, string, RegExp]>([
  [
    'a writable folder with the data directory in it',
    (p) => ({ writablePaths: [p('home')] }),
    'writablePaths',
    /holds files of Hostler/,
  ],
  [
    'a writable folder with the configuration in it',
    (p) => ({ writablePaths: [p('home/project')] }),
    'writablePaths',
    /hostler\.json/,
  ],
  [
    'a writable folder with a link to the data directory in it',
    (p) => ({ writablePaths: [p('linked')] }),
    'writablePaths',
    /linked\/data/,
  ],
  [
    'a writable folder that Hostler is started from',
    (p) => ({ writablePaths: [p('installed')] }),
    'writablePaths',
    /holds files of Hostler/,
  ],
  [
    'a folder in the data directory',
    (p) => ({ readablePaths: [p('home/data')] }),
    'readablePaths',
    /which the sandbox hides/,
  ],
  [
    'the configuration',
    (p) => ({ readablePaths: [p('home/project/hostler.json')] }),
    'readablePaths',
    /which the sandbox hides/,
  ],
  [
    'a working folder in the data directory',
    (p) => ({ cwd: p('home/data'), declaredCwd: p('linked/data') }),
    'cwd',
    /which the sandbox hides/,
  ],
  ['a program in the data directory', (p) => ({ file: p('home/data/x') }), 'command', /which the sandbox hides/],
  ['the root folder', () => ({ readablePaths: ['/'] }), 'readablePaths', /cannot be shown/],
  ['a process in /proc', () => ({ readablePaths: ['/proc/1'] }), 'readablePaths', /cannot be shown/],
  [
    'a readable folder in a writable one',
    (p) => ({ writablePaths: [p('home/notes')], readablePaths: [p('home/notes/sub')] }),
    'readablePaths',
    /writablePaths/,
  ],
  [
    'a readable link in a writable folder',
    (p) => ({ writablePaths: [p('home/notes')], readablePaths: [p('home/notes/link')] }),
    'readablePaths',
    /symbolic link/,
  ],
  [
    'a working folder behind a link in a writable folder',
    (p) => ({ writablePaths: [p('home/notes')], declaredCwd: p('home/notes/link') }),
    'cwd',
    /symbolic link/,
  ],
  [
    'a writable link in a writable folder',
    (p) => ({ writablePaths: [p('home/notes'), p('home/notes/link')] }),
    'writablePaths',
    /symbolic link/,
  ],
  ['a folder that does not exist', (p) => ({ readablePaths: [p('gone')] }), 'readablePaths', /does not exist/],
])('%s is refused', async (_name, request, field, message) => {
  mkdirSync(at('home/notes/sub'));
  symlinkSync('../../other', at('home/notes/link'));
  writeFileSync(at('home/data/x'), '');
  const error = await view(request(at)).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(isHostError(error) && error.toJSON()).toMatchObject({
    code: 'connect_failed',
    field,
    execution: 'not_executed',
  });
  expect((error as Error).message).toMatch(message);
});

test('a folder that Hostler may create later cannot be made by a server', async () => {
  mkdirSync(at('parent'));
  const hostPaths = { homes: undefined, hidden: [at('parent/later/hostler.json')], userHomes: [], programs: [] };
  await expect(view({ hostPaths, writablePaths: [at('parent')] })).rejects.toMatchObject({
    details: { reason: 'sandbox_path' },
  });
});
