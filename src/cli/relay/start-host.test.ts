import { existsSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { eventually } from '../../../test/eventually.js';
import { systemClock } from '../../kernel/clock.js';
import type { Opened } from './open-link.js';
import { joinHost } from './start-host.js';

test('lines that the host logs in the moment before it accepts the relay are passed on', async () => {
  const dataDir = mkdtempSync(path.join(os.tmpdir(), 'hostler-start-'));
  onTestFinished(() => rmSync(dataDir, { recursive: true, force: true }));
  const ready = path.join(dataDir, 'ready');
  const lines: string[] = [];
  let tries = 0;
  const opened = await joinHost({
    ...{ dataDir, config: path.join(dataDir, 'hostler.json'), env: process.env, clock: systemClock },
    command: ['/bin/sh', '-c', 'echo a warning; : >"$0"', ready],
    signal: new AbortController().signal,
    onLine: (line) => lines.push(line),
    open: async (): Promise<Opened> => {
      if (++tries === 1) return { kind: 'absent' };
      await eventually('the host has logged', () => existsSync(ready));
      return { kind: 'refused', config: '/other' };
    },
  });
  expect(opened.kind).toBe('refused');
  expect(lines).toEqual(['a warning']);
});

test('R1 a data directory in which nothing can be made is no host to wait for', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-start-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const dataDir = path.join(folder, 'loop');
  symlinkSync(dataDir, dataDir);
  const opened = await joinHost({
    ...{ dataDir, config: path.join(folder, 'hostler.json'), env: process.env, clock: systemClock, command: [] },
    signal: new AbortController().signal,
    onLine: () => {},
    open: async () => ({ kind: 'absent' }),
  });
  expect(opened).toEqual({ kind: 'unreachable', code: 'ELOOP' });
});
