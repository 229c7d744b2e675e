/**
 * Several hosts one after another on one state folder, with real child processes: what the next host knows of a failing server.
 * The server counts its starts in a file, so that nothing depends on what a host says about itself.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import Database from 'libsql';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createHost, type Host } from '../../src/host/host.js';
import type { HostConfig } from '../../src/host/host-interface.js';
import { isHostError } from '../../src/kernel/errors.js';
import type { SupervisorEvent } from '../../src/supervisor/supervisor-events.js';
import { eventually } from '../eventually.js';

/** Fails at the request for its tools. A server that exits earlier gets a second process in its first start, for the other era. */
const script = `
  open(my $ledger, '>>', $ENV{LEDGER}); print $ledger "start\\n"; close($ledger);
  $| = 1;
  while (my $line = <STDIN>) {
    exit 1 if $line =~ m{"tools/list"};
    my ($id) = $line =~ /"id":("[^"]*"|\\d+)/ or next;
    my $answer = $line =~ /"initialize"/
      ? '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}'
      : '"error":{"code":-32601,"message":"no such method"}';
    print qq({"jsonrpc":"2.0","id":$id,$answer}\\n);
  }`;

const driver = fileURLToPath(new URL('../fakes/host-driver.mjs', import.meta.url));
const budget = 6;

let folder: string;
let host: Host | undefined;
let problems: unknown[];

beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-memory-'));
  problems = [];
});
afterEach(async () => {
  await host?.close();
  host = undefined;
  rmSync(folder, { recursive: true, force: true });
});

const stateDir = () => path.join(folder, 'state');
const broken = (more: Record<string, unknown> = {}): HostConfig => ({
  mcpServers: {
    broken: { command: 'perl', args: ['-e', script], env: { LEDGER: path.join(folder, 'ledger') }, ...more },
  },
});
const starts = () => {
  const file = path.join(folder, 'ledger');
  return existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean).length : 0;
};
const open = async (config: HostConfig): Promise<Host> => {
  host = await createHost(config, { stateDir: stateDir(), onProblem: (error) => problems.push(error) });
  return host;
};
const row = () => host?.status()[0];
const parked = () => eventually('the server is parked', () => row()?.state === 'parked', 20_000);
const codeOfCall = () =>
  host?.call('broken', 'any').then(
    () => 'answered',
    (error: unknown) => (isHostError(error) ? error.code : String(error)),
  );

describe('a server that was parked', () => {
  test('D-16 an eager server is started once by the next host, and parked again for longer', async () => {
    await open(broken({ lazy: false }));
    await parked();
    expect(starts()).toBe(budget);
    await host?.close();

    for (const [further, probeAfterMs] of [
      [1, 120_000],
      [2, 240_000],
    ] as const) {
      await open(broken({ lazy: false }));
      await parked();
      expect([starts(), row()?.run]).toEqual([budget + further, 1]);
      // With up to 20 % jitter.
      expect(row()?.nextProbeInMs).toBeGreaterThan(probeAfterMs * 0.8 - 10_000);
      expect(row()?.nextProbeInMs).toBeLessThanOrEqual(probeAfterMs * 1.2);
      await host?.close();
    }
    expect(problems).toEqual([]);
  });

  test('D-16 a lazy server is not running, keeps the reason of its parking, and is tried once when it is needed', async () => {
    await open(broken());
    const first = codeOfCall();
    await parked();
    await first;
    expect(starts()).toBe(budget);
    const why = row()?.lastError;
    await host?.close();

    await open(broken());
    expect(row()).toMatchObject({ state: 'registered', ejected: false, restartCount: budget });
    expect(row()?.lastError).toMatchObject({ code: why?.code, message: why?.message });
    expect(row()?.lastError?.agoMs).toBeGreaterThanOrEqual(0);
    expect(await Promise.all([codeOfCall(), codeOfCall()])).toEqual(['server_parked', 'server_parked']);
    expect(await codeOfCall()).toBe('server_parked');
    expect(starts()).toBe(budget + 1);
  });

  test('D-36 has its whole budget under another definition of the same name', async () => {
    await open(broken({ lazy: false }));
    await parked();
    await host?.close();
    await open(broken({ lazy: false, concurrency: 2 }));
    expect(row()?.lastError).toBeUndefined();
    await parked();
    expect(starts()).toBe(2 * budget);
  });

  test('D-16 a reload resets the history for later hosts too', async () => {
    await open(broken({ restart: { max: 0 } }));
    expect(await codeOfCall()).toBe('server_parked');
    await host?.close();
    await open(broken({ restart: { max: 0 } }));
    expect(row()?.lastError?.code).toBe('transport');
    await host?.reload('broken');
    await host?.close();
    await open(broken({ restart: { max: 0 } }));
    expect(row()).toMatchObject({ state: 'registered', restartCount: 0, lastError: undefined });
    expect(starts()).toBe(1);
  });

  test('D-16 after a failed spawn, the next spawn tries it once', async () => {
    const [entry] = Object.values(broken({ restart: { max: 1 } }).mcpServers ?? {}) as [Record<string, unknown>];
    await open({});
    const spawned = () => host?.spawn({ ...entry, name: 'broken' }).catch((error: unknown) => error);
    expect(await spawned()).toMatchObject({ code: 'transport', details: { reason: 'exit' } });
    expect([starts(), host?.status()]).toEqual([2, []]);
    expect(await spawned()).toMatchObject({ code: 'transport', details: { reason: 'exit' } });
    expect([starts(), host?.status()]).toEqual([3, []]);
  });
});

describe('a host that is killed', () => {
  /** Runs a host in another process, which is killed when it reports the n-th event of this kind. */
  async function killAt(kind: SupervisorEvent['kind'], n: number): Promise<void> {
    const config = JSON.stringify(broken({ lazy: false }));
    const child = spawn(process.execPath, [driver, config, stateDir(), kind, String(n)], { stdio: 'inherit' });
    expect(await once(child, 'exit')).toEqual([null, 'SIGKILL']);
  }

  test('D-33 when it had parked a server: the next one starts it once', async () => {
    await killAt('parked', 1);
    expect(starts()).toBe(budget);
    await open(broken({ lazy: false }));
    await parked();
    expect(starts()).toBe(budget + 1);
  });

  test('D-33 in the middle of a budget: the next host has the rest of it', async () => {
    await killAt('restart', 4);
    expect(starts()).toBe(4);
    await open(broken({ lazy: false }));
    await parked();
    expect(starts()).toBe(budget);
  });
});

test('a history that cannot be written is reported, and nothing else changes', async () => {
  await open(broken({ lazy: false, restart: { max: 1 } }));
  const database = new Database(path.join(stateDir(), 'state.db'));
  database.exec('DROP TABLE histories');
  database.close();
  await parked();
  expect(starts()).toBe(2);
  expect(problems.map(String)).toContainEqual(
    expect.stringContaining("history of server 'broken' could not be written"),
  );
});
