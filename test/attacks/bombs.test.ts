/**
 * X18 end to end: definitions and requests made to be costly. The gateway runs in a process of its own that watches itself;
 * a page on the network that hears of every attempt to fetch something stands beside it.
 *
 * A stall is judged by the best of some tries: what a text costs it costs each time, what the machine does to us it does not.
 * Beyond 50 ms a request may take what parsing its text once takes here and now, and a list, which is read, compared and
 * shown, three times that: on a busy machine 50 ms are less than either. Neither may add more than 50 and 150 ms.
 */
import { writeFileSync } from 'node:fs';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Attacked } from './attacked.js';
import { requestBombs, schemaBombs } from './bombs.js';
import { type Watched, WatchedGateway } from './watched.js';

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
    web: await upstreams.httpServer('web', 'modern', { TOOLS: listFile }),
  });
  for (let i = 0; i < 20; i++)
    await post('tools/call', 'good__echo', '{"name":"good__echo","arguments":{"text":"x"},_META}');
  for (const server of ['pipe', 'web']) expect(await gateway.list(server)).toBe(1);
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

/** The least that it cost in several tries; as few as it takes. */
async function bestOf(enoughMs: number, run: () => Promise<unknown>): Promise<Watched> {
  let best: Watched | undefined;
  for (let i = 0; i < triesMax; i++) {
    await gateway.begin();
    await run();
    const { stallMs, grewMiB, keptMiB, problems } = await gateway.read();
    best = {
      stallMs: Math.min(stallMs, best?.stallMs ?? stallMs),
      grewMiB: Math.min(grewMiB, best?.grewMiB ?? grewMiB),
      keptMiB,
      problems,
    };
    if (best.stallMs <= enoughMs && best.grewMiB <= grewMiBMax) break;
  }
  return best as Watched;
}

/** What reading the text once costs a parser here and now. */
function parsedInMs(text: string): number {
  const startedMs = performance.now();
  try {
    JSON.parse(text);
  } catch {
    // Some nest too deep for it.
  }
  return performance.now() - startedMs;
}

function judge(what: string, { stallMs, grewMiB, problems }: Watched, allowedMs: number): void {
  console.log(`X18 ${what}: ${stallMs.toFixed(0)} of ${allowedMs.toFixed(0)} ms, ${grewMiB.toFixed(0)} MiB`);
  const [stalls, grows] = [stallMs > allowedMs && stallMs, grewMiB > grewMiBMax && grewMiB];
  expect({ what, stalls, grows }).toEqual({ what, stalls: false, grows: false });
  expect(problems.filter((problem) => /internal|TypeError|RangeError/.test(problem))).toEqual([]);
}

test.each(Object.keys(requestBombs))('X18 a client that sends %s holds up nobody', async (what) => {
  const [method, name, params] = (requestBombs[what] as () => [string, string, string])();
  let status = 0;
  const cost = await bestOf(stallMsMax, async () => {
    ({ status } = await post(method, name, params));
  });
  judge(what, cost, stallMsMax + Math.min(parsedInMs(params), stallMsMax));
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
    let outcome: number | string = 0;
    const cost = await bestOf(2 * stallMsMax, async () => {
      writeFileSync(listFile, text);
      outcome = await gateway.list(server);
      const listed = await post('tools/list', '', '{_META}');
      expect(listed.status).toBe(200);
      const args = `{"text":"${'a'.repeat(1_000)}!"}`;
      await post('tools/call', `${server}__t0`, `{"name":"${server}__t0","arguments":${args},_META}`);
    });
    judge(`${what} (${server})`, cost, stallMsMax + Math.min(3 * parsedInMs(text), 3 * stallMsMax));
    expect([what, typeof outcome]).toEqual([what, isTaken ? 'number' : 'string']);
    expect(fetched).toBe(0);
  },
  60_000,
);
