/**
 * One crash under many requests is one strike, whatever the requests are and however the server is reached.
 */
import { describe, expect, onTestFinished, test } from 'vitest';
import { createHost, type Host } from '../../src/host/host.js';
import { eventually } from '../eventually.js';
import { MortalHttpServer } from '../fakes/mortal-http-server.js';
import { failureOf } from './harness.js';
import { MoodyHost } from './moody-host.js';

const requests = 20;

const callsOf = (host: Host) => Array.from({ length: requests }, (_, n) => failureOf(host.call('a', 'write', { n })));
const readsOf = (host: Host) => Array.from({ length: requests }, (_, n) => failureOf(host.read('a', `x:${n}`)));

describe.each([
  ['calls', callsOf, 'tools/call', 'call'],
  ['reads', readsOf, 'resources/read', 'read'],
] as const)('W12 one crash under 20 %s', (_what, ask, method, word) => {
  test('is at most one strike over stdio', async () => {
    const moody = await MoodyHost.open({ timeouts: { call: '1m' } });
    await moody.host.tools('a');
    moody.mood = 'mute';
    const asked = ask(moody.host);
    await eventually('all are at the server', () => moody.log(word).length === requests);
    process.kill(Number(moody.log('start')[0]), 'SIGKILL');
    const codes = new Set((await Promise.all(asked)).map(({ code }) => code));
    expect([...codes]).toEqual([word === 'call' ? 'outcome_uncertain' : 'transport']);
    expect(moody.row.circuit).toBe('closed');
    expect(moody.row.consecutiveFailures).toBeLessThanOrEqual(1);
  });

  test('is one strike over HTTP', async () => {
    const server = await MortalHttpServer.open();
    const host = await createHost({ mcpServers: { a: { url: server.url } } });
    onTestFinished(async () => {
      await host.close();
      await server.crash();
    });
    await host.tools('a');
    server.answersCalls = false;
    const asked = ask(host);
    await eventually('all are at the server', () => server.count(method) === requests);
    await server.crash();
    await Promise.all(asked);
    const [row] = host.status();
    expect(row).toMatchObject({ circuit: 'closed', consecutiveFailures: 1 });
  });
});
