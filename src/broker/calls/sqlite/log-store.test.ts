import Database from 'libsql';
import { afterEach, expect, test, vi } from 'vitest';
import type { Operation } from './log-messages.js';
import { LogStore } from './log-store.js';

afterEach(() => {
  vi.restoreAllMocks();
});

test('B6: if a checkpoint finds the disk full, the answer to the same message says so, and its operations are done', () => {
  const { prepare } = Database.prototype;
  vi.spyOn(Database.prototype, 'prepare').mockImplementation(function (this: Database.Database, text: string) {
    const statement = prepare.call(this, text);
    if (!text.includes('wal_checkpoint')) return statement;
    const full = () => {
      throw Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' });
    };
    return Object.assign(Object.create(statement), { all: full });
  });
  const store = new LogStore(undefined, 'owner', () => {});
  const write = (key: string, bytes: number) => store.write({ operations: [newCall(key, bytes)], nowMs: 0 });
  expect(write('small', 10)).toMatchObject({ isFull: false, answers: [{ kind: 'done' }] });
  expect(write('large', 3 * 1024 * 1024)).toMatchObject({ isFull: true, answers: [{ kind: 'done' }] });
});

test('rows in memory give back the room of removed replies, and then there is nothing more to tidy', () => {
  const store = new LogStore(undefined, 'owner', () => {});
  const write = (...operations: Operation[]) => store.write({ operations, nowMs: 0 });
  const keys = Array.from({ length: 16 }, (_, at) => `k${at}`);
  for (const key of keys) write(newCall(key, 1024 * 1024));
  write(...keys.map((key) => ({ op: 'ack' as const, worker: 'w', epoch: 'e', key })));
  let rounds = 0;
  while (rounds < 10 && write({ op: 'tidy', isSweep: false }).hasSpare) rounds++;
  expect([rounds > 0, rounds < 10]).toEqual([true, true]);
});

const newCall = (key: string, bytes: number) => ({
  op: 'receive' as const,
  ...{ worker: 'w', epoch: 'e', key, digest: 'd', isCallersKey: false, state: 'done' as const },
  ...{ expires: 1_000, reply: new Uint8Array(bytes) },
});
