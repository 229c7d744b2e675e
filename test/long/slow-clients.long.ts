/**
 * F5 at full count: 1,000 sockets that send a byte every ten seconds, for two minutes, at a `hostler up` of its own; whoever is
 * closed comes back. Beside them honest callers, before and meanwhile.
 */
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Attacked, messageOf } from '../attacks/attacked.js';

const sockets = 1_000;
const dripEveryMs = 10_000;
const lastsMs = 120_000;
const honestCallers = 4;
/** The limits, the second between two looks at them, and room for a machine that has other things to do. */
const headerMsMax = 10_000 + 1_000 + 2_000;
const bodyMsMax = 40_000 + 1_000 + 2_000;

const attacked = new Attacked();
beforeAll(() => attacked.up({ mcpServers: { open: attacked.stdioServer('open', 'modern') } }));
afterAll(() => attacked.remove());

const residentMiB = (): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${attacked.ready.pid}/status`, 'utf8'))?.[1]) / 1_024;

interface Served {
  readonly calls: number;
  readonly wrong: number;
  readonly p99Ms: number;
  readonly maxMiB: number;
}

async function honest(forMs: number): Promise<Served> {
  const tookMs: number[] = [];
  let [wrong, maxMiB] = [0, 0];
  const untilMs = performance.now() + forMs;
  const caller = async () => {
    while (performance.now() < untilMs) {
      const startedMs = performance.now();
      const params = { name: 'open__echo', arguments: { text: 'x' } };
      const reply = await attacked.modern('tools/call', params, { key: attacked.ready.key });
      tookMs.push(performance.now() - startedMs);
      if (messageOf(reply).result?.isError !== undefined || reply.status !== 200) wrong++;
      if (tookMs.length % 200 === 0) maxMiB = Math.max(maxMiB, residentMiB());
      await wait(5);
    }
  };
  await Promise.all(Array.from({ length: honestCallers }, caller));
  tookMs.sort((a, b) => a - b);
  return { calls: tookMs.length, wrong, p99Ms: tookMs[Math.floor(tookMs.length * 0.99)] as number, maxMiB };
}

class SlowClients {
  readonly heldMs = { header: [] as number[], body: [] as number[] };
  #isOver = false;
  readonly #ends: Array<() => void> = [];

  open(part: 'header' | 'body'): void {
    const socket = connect(attacked.port, '127.0.0.1');
    const startedMs = performance.now();
    const head = `POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${attacked.ready.key}\r\n`;
    const begun = part === 'header' ? head : `${head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{`;
    socket.write(begun);
    const drip = setInterval(() => socket.write('a'), dripEveryMs);
    socket.resume();
    socket.on('error', () => {});
    this.#ends.push(() => socket.destroy());
    socket.once('close', () => {
      clearInterval(drip);
      if (this.#isOver) return;
      this.heldMs[part].push(performance.now() - startedMs);
      this.open(part);
    });
  }

  end(): void {
    this.#isOver = true;
    for (const end of this.#ends) end();
  }
}

test('F5 1,000 sockets that drip are closed by the limits, honest callers hardly notice, and little memory is held', async () => {
  // As long as it takes for its own memory to have stopped growing, with nobody slow about.
  await honest(40_000);
  const before = await honest(20_000);
  const rssMiB = Math.max(before.maxMiB, residentMiB());
  const slow = new SlowClients();
  for (let i = 0; i < sockets; i++) slow.open(i % 2 === 0 ? 'header' : 'body');
  const meanwhile = await honest(lastsMs);
  slow.end();
  const { header, body } = slow.heldMs;
  const figures = {
    before,
    meanwhile,
    ratio: meanwhile.p99Ms / before.p99Ms,
    grewMiB: Math.max(meanwhile.maxMiB, residentMiB()) - rssMiB,
    closed: { header: header.length, body: body.length },
    heldMs: { header: Math.max(...header), body: Math.max(...body) },
  };
  console.log('F5', JSON.stringify(figures));
  // Each came back as often as its limit lets it within the time.
  expect(header.length).toBeGreaterThanOrEqual((sockets / 2) * Math.floor(lastsMs / headerMsMax));
  expect(body.length).toBeGreaterThanOrEqual((sockets / 2) * Math.floor(lastsMs / bodyMsMax));
  expect(figures.heldMs.header).toBeLessThanOrEqual(headerMsMax);
  expect(figures.heldMs.body).toBeLessThanOrEqual(bodyMsMax);
  expect([before.wrong, meanwhile.wrong]).toEqual([0, 0]);
  expect(figures.ratio).toBeLessThanOrEqual(2);
  expect(figures.grewMiB).toBeLessThanOrEqual(32);
});
