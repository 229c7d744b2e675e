/** Abandoned legacy sessions over real HTTP: they make room for new clients and hold next to nothing. */
import { describe, expect, test } from 'vitest';
import { connectSdk1Client, connectSdk2Client } from '../fixtures/sdk-clients.js';
import { type Harness, openSession, rpc, send, start } from './http-harness.js';

/** Runs `count` jobs, at most `atOnce` at a time; resolves with their results in order. */
async function pooled<T>(count: number, atOnce: number, job: (i: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  let next = 0;
  const worker = async () => {
    while (next < count) {
      const i = next++;
      results[i] = await job(i);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  return results;
}

describe('W17 a full session table', () => {
  const answerTools = ({ router }: Harness) =>
    router.answers.set('tools/call', (exchange) => exchange.succeed('{"content":[{"type":"text","text":"done"}]}'));

  test('W17 1,000 abandoned sessions: 200 clients, 50 at a time, all get in and call a tool', async () => {
    const harness = await start({ authenticate: () => ({ id: 'ann', role: undefined, scopes: [] }) });
    answerTools(harness);
    const { port, ingress, url } = harness;
    const abandoned = await pooled(1_000, 20, () => openSession(port));
    expect(ingress.counts.sessions).toBe(1_000);
    const sdkClients = [
      () => connectSdk1Client({ kind: 'streamable-http', url }, []),
      () => connectSdk2Client({ kind: 'streamable-http', url }, [], 'legacy'),
    ];
    const outcomes = await pooled(200, 50, async (i) => {
      try {
        const connect = i % 10 === 0 ? sdkClients[(i / 10) % 2] : undefined;
        if (connect) {
          const client = await connect();
          const result = await client.request('tools/call', { name: 'a', arguments: {} });
          await client.close();
          return JSON.stringify(result).includes('done') ? 'called' : 'no result';
        }
        const headers = await openSession(port);
        const { status, text } = await send(port, { headers, body: rpc(1, 'tools/call', { name: 'a' }) });
        return status === 200 && text.includes('done') ? 'called' : `tools/call: ${status}`;
      } catch (error) {
        return String(error);
      }
    });
    expect(outcomes.filter((outcome) => outcome !== 'called')).toEqual([]);
    expect(ingress.counts.sessions).toBeLessThanOrEqual(1_000);
    // The clients whose sessions made room hear 404 and start again.
    const [first = {}] = abandoned;
    expect((await send(port, { headers: first, body: rpc(1, 'ping') })).status).toBe(404);
    const again = await openSession(port);
    expect((await send(port, { headers: again, body: rpc(1, 'tools/call', { name: 'a' }) })).status).toBe(200);
  });
});
