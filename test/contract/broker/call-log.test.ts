/** One suite for every log of calls. Planted bugs show that the suite finds them. */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import type { CallLog } from '../../../src/broker/calls/call-log.js';
import { openSqliteCallLog } from '../../../src/broker/calls/sqlite/sqlite-call-log.js';
import { KvCallLog } from '../../../src/broker/nats/kv-call-log.js';
import { KvStore } from '../../../src/broker/nats/kv-store.js';
import { connectNats, type NatsConnection, TurnBatch } from '../../../src/broker/nats/nats-client.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { BeginsTwice, MemoryCallLog, MemoryRows, OverwritesOutcomes } from '../../fakes/memory-call-log.js';
import { startNatsServer } from '../../fakes/nats-server.js';
import { checks, type StoreUnderTest } from './call-log-checks.js';

function inMemory(Kind: typeof MemoryCallLog = MemoryCallLog, fixedId?: string): StoreUnderTest {
  const clock = new FakeClock();
  let rows = new MemoryRows(clock);
  return {
    clock,
    open: async () => new Kind(clock, rows, fixedId),
    end: (log) => log.close(),
    wipe: async () => {
      rows = new MemoryRows(clock);
    },
    close: async () => {},
  };
}

function inSqlite(): StoreUnderTest {
  const clock = new FakeClock();
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-log-'));
  const logs = new Set<CallLog>();
  const end = async (log: CallLog) => {
    logs.delete(log);
    await log.close();
  };
  const remove = () => rmSync(folder, { recursive: true, force: true });
  return {
    ...{ clock, end, mayBeOlder: true },
    open: async () => {
      const log = await openSqliteCallLog({ folder: path.join(folder, 'log'), clock });
      logs.add(log);
      return log;
    },
    wipe: async () => remove(),
    close: async () => {
      for (const log of logs) await end(log);
      remove();
    },
  };
}

async function onNats(): Promise<StoreUnderTest> {
  const clock = new FakeClock();
  // The suite writes replies that are larger than the broker allows.
  const server = await startNatsServer({ payloadBytes: 8 * 1024 * 1024 });
  const connections = new Map<CallLog, NatsConnection>();
  const ended = new Set<string>();
  const end = async (log: CallLog) => {
    ended.add(log.owner);
    await log.close();
    await connections.get(log)?.close();
    connections.delete(log);
  };
  return {
    ...{ clock, end, isShared: true },
    open: async () => {
      const connection = await connectNats({ url: server.url, key: undefined, name: 'test', reconnects: true });
      const owner = `host-${ended.size}`;
      const onProblem = () => {};
      const store = await KvStore.open({ connection, clock, owner, replicas: 1, onProblem, batch: new TurnBatch() });
      const isGone = async (other: string) => ended.has(other);
      const log = new KvCallLog(store, isGone);
      connections.set(log, connection);
      return log;
    },
    wipe: async () => {
      await server.kill();
      server.wipe();
      await server.start();
    },
    close: async () => {
      for (const log of connections.keys()) await end(log);
      await server.stop();
    },
  };
}

/** To add a log, add a row. */
const stores: Readonly<Record<string, () => StoreUnderTest | Promise<StoreUnderTest>>> = {
  memory: () => inMemory(),
  SQLite: () => inSqlite(),
  NATS: () => onNats(),
};

const names = Object.keys(checks);

describe.each(Object.keys(stores))('%s', (name) => {
  test.each(names)(
    '%s',
    async (check) => {
      const store = await (stores[name] as () => StoreUnderTest | Promise<StoreUnderTest>)();
      try {
        await checks[check]?.(store);
      } finally {
        await store.close();
      }
    },
    30_000,
  );
});

test.each([
  ['begins a row that is begun', () => inMemory(BeginsTwice), 'a version is begun once'],
  ['writes an outcome over another', () => inMemory(OverwritesOutcomes), 'the first outcome stays'],
  ['keeps its id without its rows', () => inMemory(MemoryCallLog, 'id'), 'a store without the rows has another id'],
] as const)('the suite finds a log that %s', async (_what, make, check) => {
  await expect(checks[check]?.(make())).rejects.toThrow();
});
