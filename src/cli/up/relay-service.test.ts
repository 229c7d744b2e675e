/** A host that relays join, over a real socket and with a fake clock. */
import { once } from 'node:events';
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { version } from '../version.js';
import { RelayService } from './relay-service.js';

let folder: string;
const services: RelayService[] = [];
const sockets: Socket[] = [];
beforeEach(() => {
  folder = realpathSync(mkdtempSync(path.join(os.tmpdir(), 'hostler-relays-')));
});
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const service of services.splice(0)) await service.close();
  rmSync(folder, { recursive: true, force: true });
});

async function open(isRelayed = true) {
  const config = path.join(folder, 'hostler.json');
  writeFileSync(config, '{}');
  const clock = new FakeClock();
  /** A server whose process idles. */
  const row = { running: 0, queue: 0, leases: { bindings: 0, calls: 0 }, instances: 0, pid: 9 };
  const httpUsage = { open: 0, sessions: 0, answers: 0 };
  const ends: string[] = [];
  const service = new RelayService({
    options: { config, dataDir: folder, isRelayed },
    host: { status: () => [row] },
    gateway: { url: undefined, httpUsage, serveStdio: (socket: Socket) => once(socket, 'close') },
    ...{ workers: () => undefined, clock, idleMs: () => 30_000, isEnding: () => false },
    end: (reason: string) => ends.push(reason),
    ...{ reload: () => {}, log: () => {}, onProblem: () => {} },
  } as unknown as ConstructorParameters<typeof RelayService>[0]);
  services.push(service);
  await service.open();
  const join = async (ofVersion: string) => {
    const socket = connect(path.join(folder, 'stdio.sock'));
    sockets.push(socket);
    socket.write(
      `${JSON.stringify({ hostler: 1, version: ofVersion, client: `c${sockets.length}`, config, env: {}, options: {} })}\n`,
    );
    await once(socket, 'data');
  };
  return { clock, row, httpUsage, ends, service, join };
}

test('R3 a host with a pending upgrade ends when no call runs and no session is open, also while a server idles', async () => {
  const { clock, row, httpUsage, ends, service, join } = await open();
  await join(version);
  clock.advance(10_000);
  expect([ends, service.notes()]).toEqual([[], []]);
  row.running = 1;
  await join('99.0.0');
  expect(service.facts()).toEqual({ relays: 2, environment: [], upgradePending: '99.0.0' });
  expect(service.notes()).toEqual([
    `upgrade pending: a client has version 99.0.0, this Hostler is ${version}; it is replaced when no call runs and no session is open, or by hostler restart`,
  ]);
  for (const [call, session, instance] of [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ] as const) {
    Object.assign(row, { running: call, instances: instance });
    httpUsage.sessions = session;
    clock.advance(60_000);
    expect(ends).toEqual([]);
  }
  row.instances = 0;
  clock.advance(1_000);
  expect(ends).toEqual(['upgrade']);
});

test('R3 a host that no relay started is not replaced, and says what to do', async () => {
  const { clock, ends, service, join } = await open(false);
  await join('99.0.0');
  clock.advance(60_000);
  expect([ends, service.notes()]).toEqual([
    [],
    [`upgrade pending: a client has version 99.0.0, this Hostler is ${version}; it is replaced by hostler restart`],
  ]);
});

test('R4 a host that a relay started ends when it is idle; a host that plain `up` started does not', async () => {
  const [relayed, plain] = [await open(true), await open(false)];
  for (const { clock } of [relayed, plain]) clock.advance(24 * 3_600_000);
  expect([relayed.ends, plain.ends]).toEqual([['idle'], []]);
});
