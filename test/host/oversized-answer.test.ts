/**
 * One answer over stdio exceeds the size of a message, which ends the connection. The tests show the
 * result of its call, and of the other calls in flight.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { createHost } from '../../src/host/host.js';
import { eventually } from '../eventually.js';
import { failureOf } from '../fakes/policy-call.js';

const script = fileURLToPath(new URL('../fakes/oversized-server.mjs', import.meta.url));

async function setUp(idAt: 'first' | 'last' | 'never') {
  const folder = mkdtempSync(path.join(tmpdir(), 'hostler-oversized-'));
  const ledger = path.join(folder, 'ledger');
  const entry = { command: process.execPath, args: [script, ledger, idAt], trustAnnotations: true };
  const host = await createHost({ mcpServers: { a: entry } });
  onTestFinished(async () => {
    await host.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const lines = () => readFileSync(ledger, 'utf8').split('\n');
  const call = (tool: string, nonce: string, more: Record<string, unknown> = {}) =>
    host.call('a', tool, { nonce, ...more }, { deadlineMs: 30_000 });
  await call('write', 'warm', { isAnswered: true });
  return { host, call, executions: (line: string) => lines().filter((found) => found === line).length };
}

test.each(['first', 'last'] as const)(
  'W14 the call whose answer is too large fails with that reason, and other writes in flight are uncertain (id %s)',
  async (idAt) => {
    const { call, executions } = await setUp(idAt);
    const writes = Array.from({ length: 5 }, (_, i) => failureOf(call('write', `w${i}`)));
    await eventually('the writes are at the server', () => executions('write w4') === 1);
    const big = await failureOf(call('big', 'b'));
    expect(big.toJSON()).toMatchObject({ code: 'result_too_large', reason: 'frame_too_large', phase: 'answered' });
    for (const write of await Promise.all(writes))
      expect(write.toJSON()).toMatchObject({ code: 'outcome_uncertain', reason: 'frame_too_large', retryable: false });
    expect([0, 1, 2, 3, 4].map((i) => executions(`write w${i}`))).toEqual([1, 1, 1, 1, 1]);
    expect(executions('big b')).toBe(1);
  },
);

test('W14 a read in flight beside it is sent again, to the next run', async () => {
  const { call, executions } = await setUp('last');
  const read = call('read', 'r');
  const settled = read.then(
    () => 'answered',
    (error: Error) => error.message,
  );
  await eventually('the read is at the server', () => executions('read r') === 1);
  expect((await failureOf(call('big', 'b'))).code).toBe('result_too_large');
  await eventually('the read was sent again', () => executions('read r') === 2);
  expect(executions('big b')).toBe(1);
  expect((await failureOf(call('big', 'b2'))).code).toBe('result_too_large');
  await eventually('the read was sent a third time', () => executions('read r') === 3);
  expect((await failureOf(call('big', 'b3'))).code).toBe('result_too_large');
  expect(await settled).toMatch(/ended the connection/);
});

test('W14 a message that names no request leaves the outcome of every write uncertain, with the reason', async () => {
  const { call, executions } = await setUp('never');
  const write = failureOf(call('write', 'w'));
  await eventually('the write is at the server', () => executions('write w') === 1);
  const big = call('big', 'b').catch(() => {});
  expect((await write).toJSON()).toMatchObject({ code: 'outcome_uncertain', reason: 'frame_too_large' });
  await big;
  expect(executions('write w')).toBe(1);
});
