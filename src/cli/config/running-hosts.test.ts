import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import type { ParsedArgs } from '../command.js';
import { controlPath } from '../control/control-protocol.js';
import { openControl } from '../control/control-server.js';
import { dataDirOf } from './data-dir.js';
import { hostDataDir, registerHost } from './running-hosts.js';

const argsOf = (options: Readonly<Record<string, string>> = {}): ParsedArgs => ({
  ...{ positionals: [], afterDashes: [] },
  ...{ text: (name) => options[name], all: () => [], has: () => false },
});
const noArgs = argsOf();

test('a registered data directory that other users may write to is no running host, and its entry is removed', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-running-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const env = { HOME: folder, XDG_DATA_HOME: folder };
  const dataDir = path.join(folder, 'h');
  mkdirSync(dataDir, { mode: 0o700 });
  const control = await openControl(controlPath(dataDir), () => ({ version: async () => ({ pid: 4711 }) }));
  onTestFinished(() => control.close());
  registerHost(dataDir, env);
  expect(await hostDataDir(noArgs, 'refuse', env, folder)).toBe(dataDir);
  chmodSync(dataDir, 0o777);
  const own = path.join(folder, 'hostler');
  expect(await hostDataDir(noArgs, 'refuse', env, folder)).toBe(own);
  expect(readdirSync(path.join(own, 'running'))).toEqual([]);
});

/** A user with the projects `a`, `b` and a folder without a configuration. */
function threeFolders() {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-running-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const env = { HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: path.join(folder, 'config') };
  const [a, b, none] = ['a', 'b', 'none'].map((name) => path.join(folder, name)) as [string, string, string];
  for (const each of [a, b, none]) mkdirSync(each);
  for (const each of [a, b]) writeFileSync(path.join(each, 'hostler.json'), '{}');
  const run = async (config: string, dataDir = dataDirOf(config, env)) => {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    const control = await openControl(controlPath(dataDir), () => ({ version: async () => ({ pid: 1, config }) }));
    onTestFinished(() => control.close());
    registerHost(dataDir, env);
    return dataDir;
  };
  const said = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  onTestFinished(() => said.mockRestore());
  return { env, run, said, folder, folders: { a, b, none } };
}

test('if no Hostler runs for a folder, only commands that change nothing use another Hostler, and they say so', async () => {
  const { env, run, said, folders } = threeFolders();
  const [fileA, fileB] = [path.join(folders.a, 'hostler.json'), path.join(folders.b, 'hostler.json')];
  const running = await run(fileA);
  const named = `no Hostler is running for ${fileB};`;
  await expect(hostDataDir(noArgs, 'refuse', env, folders.b)).rejects.toMatchObject({
    message: `${named} running: ${fileA} (${running})`,
    details: { reason: 'usage' },
  });
  expect(await hostDataDir(noArgs, 'ignore', env, folders.b)).toBe(dataDirOf(fileB, env));
  expect(said).not.toHaveBeenCalled();
  expect(await hostDataDir(noArgs, 'show', env, folders.b)).toBe(running);
  expect(said.mock.calls).toEqual([[`hostler: ${named} this is the Hostler of ${fileA}\n`]]);
  for (const other of ['show', 'refuse', 'ignore'] as const)
    for (const cwd of [folders.a, folders.none]) expect(await hostDataDir(noArgs, other, env, cwd)).toBe(running);
  expect(said).toHaveBeenCalledTimes(1);
});

test("a Hostler that runs this folder's configuration in another data directory is used for this folder", async () => {
  const { env, run, folder, folders } = threeFolders();
  await run(path.join(folders.a, 'hostler.json'));
  const own = await run(path.join(folders.b, 'hostler.json'), path.join(folder, 'd'));
  for (const other of ['show', 'refuse', 'ignore'] as const)
    expect(await hostDataDir(noArgs, other, env, folders.b)).toBe(own);
  await expect(hostDataDir(noArgs, 'show', env, folders.none)).rejects.toThrow('2 Hostlers are running');
});

test('--config names the Hostler of a configuration, from any folder and in any data directory', async () => {
  const { env, run, said, folder, folders } = threeFolders();
  const [fileA, fileB] = [path.join(folders.a, 'hostler.json'), path.join(folders.b, 'hostler.json')];
  const a = await run(fileA);
  const find = (config: string, cwd = folders.none) => hostDataDir(argsOf({ config }), 'refuse', env, cwd);
  for (const cwd of [folders.b, folders.none]) expect(await find(fileA, cwd)).toBe(a);
  expect(await find('../a/hostler.json', folders.b)).toBe(a);
  // None is running: the command says so, or starts the servers itself.
  expect(await find(fileB)).toBe(dataDirOf(fileB, env));
  const b = await run(fileB, path.join(folder, 'd'));
  expect(await find(fileB)).toBe(b);
  expect(said).not.toHaveBeenCalled();
  await expect(hostDataDir(argsOf({ config: fileA, 'data-dir': b }), 'show', env, folders.none)).rejects.toMatchObject({
    message: `the data directory ${b} is in use for ${fileB}, not for ${fileA}`,
  });
  expect(await hostDataDir(argsOf({ config: fileB, 'data-dir': b }), 'show', env, folders.none)).toBe(b);
});
