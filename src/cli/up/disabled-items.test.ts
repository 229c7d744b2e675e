import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Guard } from '../../policy/allowlist.js';
import { embedder } from '../../policy/operation.js';
import { DisabledItems } from './disabled-items.js';

test('the command that enables a tool is safe to paste, whatever the server calls the tool', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'hostler-disabled-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const guards: Guard[] = [];
  const host = { setAllowlist: (guard: Guard) => guards.push(guard), stop: async () => {}, reload: async () => {} };
  const tool = "x';id;'";
  await new DisabledItems(folder, host as never).set('s', tool, true);
  const hint = "hostler enable 's/x'\\'';id;'\\''' puts it back";
  expect(guards[0]?.({ principal: embedder, server: 's', tool, action: 'call' })).toMatchObject({ hint });
});
