/**
 * X18 end to end: definitions and requests made to be costly. The gateway runs in a process of its own that watches itself;
 * a page on the network that hears of every attempt to fetch something stands beside it.
 *
 * A stall is judged by the best of some tries: what a text costs it costs each time, what the machine does to us it does not.
 * Each try costs the same: a list is read anew, shown, called from, and gives way to a small one that is read anew.
 * Beyond 50 ms a request may take what parsing its text once takes here and now, and a list, which is read, compared, shown
 * and kept in files (as a pin, and as what is known of the server), what parsing and keeping it three times takes: on a busy
 * machine 50 ms are less than either. Neither may add more than 50 and 150 ms.
 */
import { writeFileSync } from 'node:fs';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Attacked } from './attacked.js';
import { requestBombs, schemaBombs } from './bombs.js';
import { WatchedGateway } from './watched.js';

const stallMsMax = 50;
const grewMiBMax = 64;
const triesMax = 3;

const gateway = new WatchedGateway();
const upstreams = new Attacked();
const harmless = '{"tools":[{"name":"t0","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}';
const listFile = path.join(gateway.folder, 'tools.json');
let canary: Server;
let fetched = 0;
const canaryUrl = () => `http://127.0.0.1:${(canary.address() as AddressInfo).port}`;

beforeAll(async () => {
  canary = createServer((_request, response) => {
    fetched++;
    response.end('{}');
  });
  await new Promise<void>((resolve) => canary.listen(0, '127.0.0.1', resolve));
  writeFileSync(listFile, harmless);
  await gateway.start({
    good: upstreams.stdioServer('good', 'modern'),
    pipe: upstreams.stdioServer('pipe', 'legacy', { TOOLS: listFile }),
    // A line that is no message is noise on a pipe, and answers nothing: a start that needs it ends with its own time.
    brief: { ...upstreams.stdioServer('brief', 'legacy', { TOOLS: listFile }), timeouts: { start: '3s' } },
    web: await upstreams.httpServer('web', 'modern', { TOOLS: listFile }),
  });
  for (let i = 0; i < 20; i++)
    await post('tools/call', 'good__echo', '{"name":"good__echo","arguments":{"text":"x"},_META}');
  for (const server of ['pipe', 'brief', 'web']) expect(await gateway.list(server)).toBe(1);
}, 30_000);
afterAll(async () => {
  await gateway.remove();
  await upstreams.remove();
  canary.close();
});

const usualMeta =
  '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}';

function post(method: string, name: string, params: string, headers: Record<string, string> = {}) {
  const body = `{"jsonrpc":"2.0","id":1,"method":"${method}","params":${params.replace('_META', usualMeta)}}`;
  return new Promise<{ status: number; text: string }>((resolve, reject) => {
    const all = {
      ...{ 'content-type': 'application/json', 'mcp-protocol-version': '2026-07-28', 'mcp-method': method },
      ...(name === '' ? {} : { 'mcp-name': name }),
      ...headers,
    };
    const sent = request(
      { host: '127.0.0.1', port: gateway.port, path: '/mcp', method: 'POST', headers: all },
      (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
        });
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
      },
    );
    sent.on('error', reject);
    sent.end(body);
  });
}

/** What reading the text costs here and now, or reading and keeping it. */
function costMs(text: string, isKept: boolean): number {
  const startedMs = performance.now();
  try {
    const value: unknown = JSON.parse(text);
    if (isKept) writeFileSync(path.join(gateway.folder, 'kept.json'), JSON.stringify(value));
  } catch {
    // Some nest too deep for it.
  }
  return performance.now() - startedMs;
}

/** Tries until one cost no more than it may, or often enough; `looks`: how often the text may be looked at. */
async function judge(what: string, text: string, looks: number, run: () => Promise<unknown>): Promise<void> {
  let [stallMs, grewMiB, allowedMs] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, 0];
  for (let i = 0; i < triesMax && (stallMs > allowedMs || grewMiB > grewMiBMax); i++) {
    await gateway.begin();
    await run();
    const seen = await gateway.read();
    [stallMs, grewMiB] = [Math.min(stallMs, seen.stallMs), Math.min(grewMiB, seen.grewMiB)];
    allowedMs = Math.max(allowedMs, stallMsMax + looks * Math.min(costMs(text, looks > 1), stallMsMax));
    expect(seen.problems.filter((problem) => /internal|TypeError|RangeError/.test(problem))).toEqual([]);
  }
  console.log(`X18 ${what}: ${stallMs.toFixed(0)} of ${allowedMs.toFixed(0)} ms, ${grewMiB.toFixed(0)} MiB`);
  const [stalls, grows] = [stallMs > allowedMs && stallMs, grewMiB > grewMiBMax && grewMiB];
  expect({ what, stalls, grows }).toEqual({ what, stalls: false, grows: false });
}

test.each(Object.keys(requestBombs))('X18 a client that sends %s holds up nobody', async (what) => {
  const [method, name, params] = (requestBombs[what] as () => [string, string, string])();
  let status = 0;
  await judge(what, params, 1, async () => {
    ({ status } = await post(method, name, params));
  });
  expect([200, 400, 413]).toContain(status);
  expect(
    (await post('tools/call', 'good__echo', '{"name":"good__echo","arguments":{"text":"still here"},_META}')).text,
  ).toContain('still here');
});

const names = schemaBombs('http://canary').map(([what]) => what);
test.each(names.flatMap((what) => ['pipe', 'web'].map((server) => [what, server] as const)))(
  'X18 a server that lists %s holds up nobody, and nothing is fetched (%s)',
  async (what, server) => {
    const [, isTaken, text] = schemaBombs(canaryUrl()).find(([each]) => each === what) as [string, boolean, string];
    const listing = isTaken || server === 'web' ? server : 'brief';
    let outcome: number | string = 0;
    await judge(`${what} (${server})`, text, 3, async () => {
      writeFileSync(listFile, text);
      outcome = await gateway.list(listing);
      expect((await post('tools/list', '', '{_META}')).status).toBe(200);
      const args = `{"text":"${'a'.repeat(1_000)}!"}`;
      await post('tools/call', `${listing}__t0`, `{"name":"${listing}__t0","arguments":${args},_META}`);
      writeFileSync(listFile, harmless);
      expect(await gateway.list(listing)).toBe(1);
    });
    expect([what, typeof outcome]).toEqual([what, isTaken ? 'number' : 'string']);
    expect(fetched).toBe(0);
  },
  60_000,
);
