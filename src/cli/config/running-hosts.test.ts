import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { ParsedArgs } from '../command.js';
import { controlPath } from '../control/control-protocol.js';
import { openControl } from '../control/control-server.js';
import { hostDataDir, registerHost } from './running-hosts.js';

const noArgs: ParsedArgs = {
  ...{ positionals: [], afterDashes: [] },
  ...{ text: () => undefined, all: () => [], has: () => false },
};

test('a registered data directory that other users may write to is no running host, and its entry is removed', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-running-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const env = { HOME: folder, XDG_DATA_HOME: folder };
  const dataDir = path.join(folder, 'h');
  mkdirSync(dataDir, { mode: 0o700 });
  const control = await openControl(controlPath(dataDir), () => ({ version: async () => ({ pid: 4711 }) }));
  onTestFinished(() => control.close());
  registerHost(dataDir, env);
  expect(await hostDataDir(noArgs, env, folder)).toBe(dataDir);
  chmodSync(dataDir, 0o777);
  const own = path.join(folder, 'hostler');
  expect(await hostDataDir(noArgs, env, folder)).toBe(own);
  expect(readdirSync(path.join(own, 'running'))).toEqual([]);
});
