/**
 * Retries multiply: calls of a caller that repeats them itself must not be sent again. The executions are counted in the ledger of a
 * real server that records each call and then exits without an answer: the worst case for a tool that may run twice.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createHost, type Host } from '../../src/host/host.js';
import { failureOf } from '../fakes/policy-call.js';

const script = fileURLToPath(new URL('../fakes/ledger-server.pl', import.meta.url));
let folder: string;
let host: Host;
beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'hostler-amplification-'));
  const env = {
    LEDGER: path.join(folder, 'ledger'),
    TOOLS: '[{"name":"read","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object"}}]',
    DIES: '1',
  };
  const entry = { command: 'perl', args: [script], env, trustAnnotations: true, pins: 'warn' };
  host = await createHost({ mcpServers: { ledger: entry } });
});
afterEach(async () => {
  await host.close();
  rmSync(folder, { recursive: true, force: true });
});

/** The number of executions at the server. */
async function executionsOf(attempt: number): Promise<number> {
  const nonce = `attempt-${attempt}`;
  await host.start('ledger');
  await failureOf(host.call('ledger', 'read', { nonce }, { attempt, deadlineMs: 20_000 }));
  return readFileSync(path.join(folder, 'ledger'), 'utf8')
    .split('\n')
    .filter((line) => line === nonce).length;
}

test('K6 amplification: a call is sent again at most twice, and never for a caller that has sent it before', async () => {
  expect(await executionsOf(0)).toBe(3);
  for (const attempt of [1, 2, 7]) {
    await host.reload('ledger');
    expect(await executionsOf(attempt)).toBe(1);
  }
});
