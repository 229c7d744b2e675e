/**
 * F5 at full count: 1,000 sockets send a byte every ten seconds for two minutes to a `hostler up` of their own, and connect again when
 * they are closed. Honest callers call before and meanwhile: in one test over HTTP, in the other as workers through the broker.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { Attacked, messageOf } from '../attacks/attacked.js';
import { BrokerPlace, hashOf, newKey } from '../broker/e2e/broker-place.js';

const dripEveryMs = 10_000;
const lastsMs = 120_000;
/** Addresses of the slow clients. From one address the broker refuses the 129th socket without a hello at once. */
const addresses = 10;
const honestCallers = 4;
/** The second between two looks at the limits, and room for a machine that has other things to do. */
const lateMsMax = 1_000 + 2_000;

interface SlowKind {
  readonly sockets: number;
  readonly begins: string;
  /** Resolves when the connection is cut. */
  readonly limitMs: number;
}

interface Attack {
  readonly pid: number;
  readonly port: number;
  readonly kinds: Readonly<Record<string, SlowKind>>;
  /** Whether the answer is correct. */
  readonly call: () => Promise<boolean>;
}

interface Served {
  readonly calls: number;
  readonly wrong: number;
  readonly p99Ms: number;
  readonly maxMiB: number;
}

const residentMiB = (pid: number): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1_024;

async function honest({ pid, call }: Attack, forMs: number): Promise<Served> {
  const tookMs: number[] = [];
  let [wrong, maxMiB] = [0, 0];
  const untilMs = performance.now() + forMs;
  const caller = async () => {
    while (performance.now() < untilMs) {
      const startedMs = performance.now();
      const isRight = await call();
      tookMs.push(performance.now() - startedMs);
      if (!isRight) wrong++;
      if (tookMs.length % 200 === 0) maxMiB = Math.max(maxMiB, residentMiB(pid));
      await wait(5);
    }
  };
  await Promise.all(Array.from({ length: honestCallers }, caller));
  tookMs.sort((a, b) => a - b);
  return { calls: tookMs.length, wrong, p99Ms: tookMs[Math.floor(tookMs.length * 0.99)] as number, maxMiB };
}

class SlowClients {
  readonly heldMs = new Map<string, number[]>();
  readonly #port: number;
  #isOver = false;
  readonly #ends = new Set<() => void>();

  constructor({ port, kinds }: Attack) {
    this.#port = port;
    for (const [name, { sockets, begins }] of Object.entries(kinds)) {
      this.heldMs.set(name, []);
      for (let i = 0; i < sockets; i++) this.#open(name, begins, `127.0.0.${2 + (i % addresses)}`);
    }
  }

  #open(name: string, begins: string, localAddress: string): void {
    const socket = connect({ port: this.#port, host: '127.0.0.1', localAddress });
    const startedMs = performance.now();
    socket.write(begins);
    const drip = setInterval(() => socket.write('a'), dripEveryMs);
    socket.resume();
    socket.on('error', () => {});
    const end = () => socket.destroy();
    this.#ends.add(end);
    socket.once('close', () => {
      clearInterval(drip);
      this.#ends.delete(end);
      if (this.#isOver) return;
      this.heldMs.get(name)?.push(performance.now() - startedMs);
      this.#open(name, begins, localAddress);
    });
  }

  end(): void {
    this.#isOver = true;
    for (const end of this.#ends) end();
  }
}

async function endure(name: string, attack: Attack): Promise<void> {
  // First without slow clients, until the memory has stopped growing.
  await honest(attack, 40_000);
  const before = await honest(attack, 20_000);
  const rssMiB = Math.max(before.maxMiB, residentMiB(attack.pid));
  const slow = new SlowClients(attack);
  const meanwhile = await honest(attack, lastsMs);
  slow.end();
  const held = Object.entries(attack.kinds).map(([kind, { sockets, limitMs }]) => {
    const heldMs = slow.heldMs.get(kind) as number[];
    return { kind, sockets, limitMs, closed: heldMs.length, minMs: Math.min(...heldMs), maxMs: Math.max(...heldMs) };
  });
  const figures = {
    before,
    meanwhile,
    ratio: meanwhile.p99Ms / before.p99Ms,
    grewMiB: Math.max(meanwhile.maxMiB, residentMiB(attack.pid)) - rssMiB,
    held,
  };
  console.log('F5', name, JSON.stringify(figures));
  for (const { sockets, limitMs, closed, minMs, maxMs } of held) {
    // Each socket was closed and connected again as often as its limit allows, and none was closed earlier.
    expect(closed).toBeGreaterThanOrEqual(sockets * Math.floor(lastsMs / (limitMs + lateMsMax)));
    expect(minMs).toBeGreaterThanOrEqual(limitMs - 100);
    expect(maxMs).toBeLessThanOrEqual(limitMs + lateMsMax);
  }
  expect([before.wrong, meanwhile.wrong]).toEqual([0, 0]);
  expect(figures.ratio).toBeLessThanOrEqual(2);
  expect(figures.grewMiB).toBeLessThanOrEqual(32);
}

test('F5 1,000 slow sockets over HTTP are closed by the limits, with almost no effect on normal callers and memory', async () => {
  const attacked = new Attacked();
  onTestFinished(() => attacked.remove());
  await attacked.up({ mcpServers: { open: attacked.stdioServer('open', 'modern') } });
  const { pid, key } = attacked.ready;
  const head = `POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n`;
  await endure('HTTP', {
    ...{ pid, port: attacked.port },
    kinds: {
      header: { sockets: 500, begins: head, limitMs: 10_000 },
      body: {
        ...{ sockets: 500, limitMs: 40_000 },
        begins: `${head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{`,
      },
    },
    call: async () => {
      const params = { name: 'open__echo', arguments: { text: 'x' } };
      const reply = await attacked.modern('tools/call', params, { key });
      return reply.status === 200 && messageOf(reply).result?.isError === undefined;
    },
  });
});

test('F5 1,000 slow sockets at the broker are closed by the limits, with almost no effect on normal workers and memory', async () => {
  const place = new BrokerPlace();
  onTestFinished(() => place.remove());
  const key = newKey();
  place.configure({
    mcpServers: { books: place.ledgerEntry('books') },
    roles: { all: { allow: ['books/*'] } },
    keys: { ann: { hash: hashOf(key), worker: 'ann', role: 'all' } },
    broker: { listen: { port: 0 } },
  });
  const { pid, broker } = await place.upWithBroker();
  const tools = await place.worker(broker, key);
  const { port, pathname } = new URL(broker);
  const head = `GET ${pathname} HTTP/1.1\r\nHost: localhost\r\n`;
  const upgrade = `${head}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${randomBytes(16).toString('base64')}\r\n\r\n`;
  let nonce = 0;
  await endure('broker', {
    ...{ pid, port: Number(port) },
    kinds: {
      header: { sockets: 800, begins: head, limitMs: 5_000 },
      // More sockets than may connect without a hello would be refused at once.
      hello: { sockets: 200, begins: upgrade, limitMs: 5_000 },
    },
    call: async () => {
      const result = await tools.execute('books', 'work', { nonce: String(++nonce) }, { deadlineMs: 30_000 });
      return result !== undefined;
    },
  });
  expect(place.ran('books')).toHaveLength(nonce);
});
