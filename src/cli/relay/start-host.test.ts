import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { eventually } from '../../../test/eventually.js';
import { systemClock } from '../../kernel/clock.js';
import type { Opened } from './open-link.js';
import { type HostStart, joinHost } from './start-host.js';

test('lines that the host logs in the moment before it accepts the relay are passed on', async () => {
  const dataDir = mkdtempSync(path.join(os.tmpdir(), 'hostler-start-'));
  onTestFinished(() => rmSync(dataDir, { recursive: true, force: true }));
  const ready = path.join(dataDir, 'ready');
  const lines: string[] = [];
  let tries = 0;
  const opened = await joinHost({
    ...{ dataDir, config: dataDir, givenConfig: dataDir, env: process.env, clock: systemClock },
    command: ['/bin/sh', '-c', 'echo a warning; : >"$0"', ready],
    signal: new AbortController().signal,
    onLaunch: () => {},
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

test('R1 if nothing can be created in the data directory, the relay waits for no host', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-start-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const dataDir = path.join(folder, 'loop');
  symlinkSync(dataDir, dataDir);
  const opened = await joinHost({
    ...{ dataDir, config: folder, givenConfig: folder, env: process.env, clock: systemClock, command: [] },
    signal: new AbortController().signal,
    onLaunch: () => {},
    onLine: () => {},
    open: async () => ({ kind: 'absent' }),
  });
  expect(opened).toEqual({ kind: 'unreachable', code: 'ELOOP' });
});

/** A start in a separate folder; `command` starts the host. */
function setUp(script: string, part: Partial<HostStart> = {}) {
  const dataDir = mkdtempSync(path.join(os.tmpdir(), 'hostler-start-'));
  onTestFinished(() => rmSync(dataDir, { recursive: true, force: true }));
  const config = path.join(dataDir, 'hostler.json');
  writeFileSync(config, '{}');
  const ran = path.join(dataDir, 'ran');
  const join = () =>
    joinHost({
      ...{
        dataDir,
        config,
        givenConfig: config,
        env: process.env,
        clock: systemClock,
        onLaunch: () => {},
        onLine: () => {},
      },
      signal: new AbortController().signal,
      command: ['/bin/sh', '-c', script, ran],
      open: async () => ({ kind: 'absent' }),
      ...part,
    });
  return { dataDir, config, ran, join };
}

test('R2 a configuration that does not exist is the reason, and no host is started', async () => {
  const missing = '/nowhere/hostler.json';
  const { ran, join } = setUp(': >"$0"', { config: missing, givenConfig: missing });
  expect(await join()).toEqual({ kind: 'failed', reason: `${missing} does not exist`, isFinal: true });
  expect(existsSync(ran)).toBe(false);
});

test('R2 an error of the configuration is final, and any other error of the start is not', async () => {
  const given = '/a/hostler.json';
  const printed = `echo 'hostler: ${given}:1:2: listen.port: must be a whole number [invalid_spec]'`;
  expect(await setUp(printed, { givenConfig: given }).join()).toMatchObject({ kind: 'failed', isFinal: true });
  expect(await setUp("echo 'hostler: no memory is left'").join()).toEqual({
    ...{ kind: 'failed', reason: 'no memory is left', isFinal: false },
  });
});

test('R2 a relay that is stopped while it waits for a host fails with that reason, and does not try again', async () => {
  const stopped = new AbortController();
  const { join } = setUp('exec sleep 0.1', { signal: stopped.signal });
  const joining = join();
  stopped.abort();
  expect(await joining).toEqual({ kind: 'failed', reason: 'the relay was stopped', isFinal: true });
});

test('R1 a host is no child process of the Hostler that started its relay', async () => {
  const env = { ...process.env, HOSTLER_RUN: 'outer.1', KEPT: 'yes' };
  const { ran, join } = setUp('env >"$0"', { env });
  await join();
  const seen = readFileSync(ran, 'utf8').split('\n');
  expect([seen.includes('KEPT=yes'), seen.filter((line) => line.startsWith('HOSTLER_RUN'))]).toEqual([true, []]);
});
