/**
 * F3: a server, or the network in front of it, fails in every known way. Each request must be settled, and the statement
 * about its execution must agree with the bytes that the server received:
 * `not_executed` only when not one byte arrived, `uncertain` whenever one may have.
 */
import { connect as connectTcp, createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { buildConnector } from 'undici';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { type HostError, isHostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { seededRandom } from '../../src/kernel/random.js';
import { type Dial, guardedDial } from '../../src/transports/http/dial-guard.js';
import { openStreamableHttp, type StreamableHttpChannel } from '../../src/transports/http/streamable-http-channel.js';
import type { OutboundFrame } from '../../src/wire/channel.js';
import { modernEra } from '../fakes/eras.js';
import {
  answerBody,
  type ChaosServer,
  FRAMINGS,
  type Ledger,
  type Plan,
  startChaosServer,
} from '../fakes/http-chaos-server.js';
import { type Heard, RecordingListener, rawRequest, request } from '../fakes/http-listener.js';
import { until } from '../fakes/http-until.js';

let chaos: ChaosServer;
let channel: StreamableHttpChannel;
let heard: RecordingListener;
const toClose: Array<() => unknown> = [];
/** Checked again at the end, for bytes that arrived late. */
const claims: Array<{ ledger: Ledger; notExecuted: boolean }> = [];
const tally = { cases: 0, answered: 0, not_executed: 0, uncertain: 0 };

beforeAll(async () => {
  chaos = await startChaosServer();
  ({ channel, heard } = openTo(chaos.url));
});
afterEach(async () => {
  for (const close of toClose.splice(0).reverse()) await close();
});
afterAll(async () => {
  await channel.close();
  await chaos.close();
});

function openTo(url: string, dial?: Dial) {
  const deps = { clock: new FakeClock(), random: seededRandom(1), ...(dial ? { dial } : {}) };
  const opened = openStreamableHttp({ server: 'chaos', url }, deps);
  const listener = new RecordingListener();
  opened.start(listener);
  opened.adopt({ era: modernEra, version: '2026-07-28' });
  return { channel: opened, heard: listener };
}

/** Sends one request under the plan, and checks its outcome. */
async function run(plan: Plan, frame: OutboundFrame = request('tools/call')): Promise<Heard | HostError> {
  const ledger = chaos.play(plan);
  expect(channel.send(frame)).toBeUndefined();
  const outcome = await heard.settled(frame);
  judge(frame, outcome, ledger);
  heard.messages.length = heard.failures.length = 0;
  return outcome;
}

function judge(frame: OutboundFrame, outcome: Heard | HostError, ledger: Ledger): void {
  tally.cases++;
  claims.push({ ledger, notExecuted: isHostError(outcome) && outcome.details.execution === 'not_executed' });
  if (!isHostError(outcome)) {
    tally.answered++;
    expect(outcome.id).toBe(frame.id);
    expect(ledger.whole).toBe(1);
    return;
  }
  const { execution } = outcome.details;
  tally[execution ?? 'uncertain']++;
  if (execution === 'not_executed')
    expect({ bytes: ledger.bytes, phase: frame.phase }).toEqual({ bytes: 0, phase: 'queued' });
  else expect({ execution, queued: frame.phase === 'queued' }).toEqual({ execution: 'uncertain', queued: false });
}

const reset = (socket: Socket) => socket.resetAndDestroy();
const finish = (socket: Socket) => socket.end();

for (const [framing, text] of Object.entries(FRAMINGS)) {
  for (const [how, end] of Object.entries({ RST: reset, FIN: finish })) {
    test(`F3 ${how} at each byte of an answer framed by ${framing}`, async () => {
      const length = text(1_000).length;
      for (let at = 0; at < length - 4; at++) {
        const outcome = await run({
          request: (socket, id) => void socket.write(text(id).slice(0, at), () => end(socket)),
        });
        // A body that ends with the connection is complete as soon as its JSON is; all others must not be accepted early.
        if (framing === 'content-length' && at < length - 8) expect(isHostError(outcome)).toBe(true);
      }
      const whole = await run({ request: (socket, id) => void socket.end(text(id)) });
      expect(isHostError(whole)).toBe(false);
    });
  }
}

test('F3 RST and FIN while the request is still arriving', async () => {
  const payload = Buffer.from(`{"x":"${'y'.repeat(2 * 1024 * 1024)}"}`);
  for (const end of [reset, finish, (socket: Socket) => socket.destroy()]) {
    for (let at = 1; at < payload.length; at += 131_071) {
      const frame = rawRequest('tools/call', payload);
      const outcome = await run({ bytes: (socket, total) => void (total >= at && end(socket)) }, frame);
      expect(isHostError(outcome)).toBe(true);
    }
  }
});

test('F3 RST, FIN and close right after the connection', async () => {
  for (const end of [reset, finish, (socket: Socket) => socket.destroy()]) {
    for (let i = 0; i < 40; i++) expect(isHostError(await run({ connected: end }))).toBe(true);
  }
});

test('F3 half-close before and after the request', async () => {
  for (let i = 0; i < 20; i++) {
    const early = await run({ connected: finish, request: (socket, id) => void socket.write(answerBody(id)) });
    expect(early).toMatchObject({ code: 'transport', details: { execution: 'uncertain' } });
    expect(await run({ request: finish })).toMatchObject({ details: { execution: 'uncertain' } });
  }
});

const head = (headers: string) => `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n${headers}\r\n`;
test.each<[string, (id: number) => string]>([
  ['a length that is too long', (id) => head('content-length: 500\r\n') + answerBody(id)],
  ['a length that is too short', (id) => head('content-length: 10\r\n') + answerBody(id)],
  ['a length of nothing', (id) => head('content-length: 0\r\n') + answerBody(id)],
  ['a length that is no number', (id) => head('content-length: ten\r\n') + answerBody(id)],
  ['two lengths', (id) => head('content-length: 5\r\ncontent-length: 50\r\n') + answerBody(id)],
  ['length and chunks', (id) => `${head('content-length: 5\r\ntransfer-encoding: chunked\r\n')}5\r\n${answerBody(id)}`],
  ['a chunk size that is no number', () => `${head('transfer-encoding: chunked\r\n')}zz\r\n{}\r\n0\r\n\r\n`],
  ['gzip', (id) => head('content-encoding: gzip\r\ncontent-length: 60\r\n') + answerBody(id)],
  ['gzip cut short', () => `${head('content-encoding: gzip\r\ncontent-length: 60\r\n')}\x1f\x8b`],
  ['100 before the answer', (id) => `HTTP/1.1 100 Continue\r\n\r\n${FRAMINGS['content-length']?.(id)}`],
  ['an unrequested upgrade', () => 'HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n'],
  ['a header without end', () => `HTTP/1.1 200 OK\r\nx: ${'a'.repeat(20_000)}`],
  ['another protocol', () => 'SSH-2.0-OpenSSH_9.6\r\n'],
  ['HTTP/2', () => 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
  ['only a line end', () => '\r\n\r\n'],
  ['an answer to another request', () => FRAMINGS['content-length']?.(77_777_777) ?? ''],
  ['half an answer, well framed', () => `${head('content-length: 14\r\n')}{"jsonrpc":"2.`],
])('F3 %s is uncertain, and the next call is served', async (_name, text) => {
  for (let i = 0; i < 5; i++) {
    const outcome = await run({ request: (socket, id) => void socket.end(text(id), 'latin1') });
    expect(outcome).toMatchObject({ details: { execution: 'uncertain' } });
  }
  const next = await run({ request: (socket, id) => void socket.write(FRAMINGS['content-length']?.(id) ?? '') });
  expect(isHostError(next)).toBe(false);
});

test('F3 103 before the answer does no harm', async () => {
  const early = 'HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n';
  const outcome = await run({ request: (socket, id) => void socket.write(early + FRAMINGS['content-length']?.(id)) });
  expect(isHostError(outcome)).toBe(false);
});

test('F3 an answer that drips byte by byte arrives', async () => {
  for (const text of Object.values(FRAMINGS)) {
    const outcome = await run({
      request: (socket, id) => {
        const drip = (rest: string) => {
          if (rest === '') socket.end();
          else socket.write(rest.slice(0, 1), () => setImmediate(drip, rest.slice(1)));
        };
        socket.setNoDelay(true);
        drip(text(id));
      },
    });
    expect(isHostError(outcome)).toBe(false);
  }
});

test('F3 a second, unrequested answer does not reach the next call', async () => {
  const forged = FRAMINGS['content-length']?.(1) ?? '';
  await run({ request: (socket, id) => void socket.write(FRAMINGS['content-length']?.(id) + forged) });
  for (let i = 0; i < 10; i++) {
    const next = await run({ request: (socket, id) => void socket.write(FRAMINGS['content-length']?.(id) + forged) });
    expect(isHostError(next)).toBe(false);
  }
});

test('F3 a request to a server that accepts and stays silent is given up at its deadline, and nothing follows', async () => {
  for (let i = 0; i < 20; i++) {
    const ledger = chaos.play({});
    const frame = request('tools/call');
    channel.send(frame);
    await until(() => ledger.whole === 1);
    expect(channel.withdraw(frame)).toBe('aborted');
    expect(frame.phase).not.toBe('queued');
    tally.cases++;
    tally.uncertain++;
  }
  await run({ request: (socket, id) => void socket.end(FRAMINGS.chunked?.(id) ?? '') });
  expect(heard.failures).toEqual([]);
});

async function runElsewhere(url: string, dial?: Dial, times = 1): Promise<void> {
  const other = openTo(url, dial);
  toClose.push(() => other.channel.close());
  for (let i = 0; i < times; i++) {
    const ledger = { connections: 0, bytes: 0, whole: 0 };
    const frame = request('tools/call');
    other.channel.send(frame);
    const outcome = await other.heard.settled(frame);
    judge(frame, outcome, ledger);
    expect(outcome).toMatchObject({ code: 'connect_failed', retryable: true, details: { execution: 'not_executed' } });
  }
}

test('F3 no server listens', async () => {
  const closed = await startChaosServer();
  await closed.close();
  await runElsewhere(closed.url, undefined, 100);
});

test('F3 a name that does not resolve', async () => {
  const fail = guardedDial({
    policy: 'any',
    server: 'chaos',
    resolve: (_name, done) => done(Object.assign(new Error('no such name'), { code: 'ENOTFOUND' }), []),
  });
  await runElsewhere('http://nowhere.example/mcp', fail, 50);
});

test('F3 an address that does not answer', async () => {
  // The lookup never returns, so the dial lasts until undici ends it.
  const hang = guardedDial({ policy: 'any', server: 'chaos', connectTimeoutMs: 20, resolve: () => {} });
  await runElsewhere('http://slow.example/mcp', hang, 2);
});

test('F3 a dial that hangs can be withdrawn without a trace', async () => {
  const resolves: Array<() => void> = [];
  const slow = guardedDial({
    policy: 'any',
    server: 'chaos',
    resolve: (_name, done) => resolves.push(() => done(null, [{ address: '127.0.0.1', family: 4 }])),
  });
  const ledger = chaos.play({ request: (socket, id) => void socket.write(FRAMINGS['content-length']?.(id) ?? '') });
  const other = openTo(`http://slow.example:${chaos.port}/mcp`, slow);
  toClose.push(() => other.channel.close());
  const [never, after] = [request('never'), request('after')];
  other.channel.send(never);
  await until(() => resolves.length === 1);
  expect(other.channel.withdraw(never)).toBe('unsent');
  other.channel.send(after);
  await until(() => resolves.length === 2);
  for (const resolve of resolves) resolve();
  await other.heard.settled(after);
  expect(ledger.whole).toBe(1);
  expect(other.heard.failures).toEqual([]);
  expect(never.phase).toBe('queued');
});

/** TLS by shared key: no certificate to keep in the tree or let expire. */
const psk = { psk: Buffer.alloc(16, 7), identity: 'test' };
const tlsOptions = { ciphers: 'PSK-AES128-GCM-SHA256', maxVersion: 'TLSv1.2' } as const;
const pskDial = buildConnector({
  ...tlsOptions,
  pskCallback: () => psk,
  checkServerIdentity: () => undefined,
} as buildConnector.BuildOptions);

async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  toClose.push(() => new Promise((resolve) => server.close(resolve)));
  return (server.address() as { port: number }).port;
}

test('F3 TLS cut after each few bytes of what the server sends', async () => {
  let ledger: Ledger = { connections: 0, bytes: 0, whole: 0 };
  const inner = createTlsServer({ ...tlsOptions, pskCallback: () => psk.psk }, (socket) => {
    socket.on('error', () => {});
    socket.on('data', (chunk) => {
      ledger.bytes += chunk.length;
      const id = /"id":(\d+)/.exec(chunk.toString())?.[1];
      if (id === undefined) return;
      ledger.whole++;
      socket.write(FRAMINGS['content-length']?.(Number(id)) ?? '');
    });
  });
  inner.on('tlsClientError', () => {});
  const innerPort = await listen(inner);
  let cutAt = 0;
  const proxy = createServer((near) => {
    const far = connectTcp(innerPort, '127.0.0.1');
    let sent = 0;
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      socket.on('error', () => {});
      socket.on('close', () => other.destroy());
    }
    near.pipe(far);
    far.on('data', (chunk: Buffer) => {
      near.write(chunk.subarray(0, Math.max(0, cutAt - sent)));
      sent += chunk.length;
      if (sent >= cutAt) near.resetAndDestroy();
    });
  });
  const port = await listen(proxy);

  const seen = new Set<string>();
  for (cutAt = 1; cutAt < 1_200; cutAt += 7) {
    const other = openTo(`https://127.0.0.1:${port}/mcp`, pskDial);
    ledger = { connections: 0, bytes: 0, whole: 0 };
    const frame = request('tools/call');
    other.channel.send(frame);
    const outcome = await other.heard.settled(frame);
    judge(frame, outcome, ledger);
    seen.add(isHostError(outcome) ? (outcome.details.execution ?? '') : 'answered');
    await other.channel.close();
  }
  expect(seen).toEqual(new Set(['not_executed', 'uncertain', 'answered']));
}, 60_000);

test('F3 a server that does not speak TLS, or is not trusted, is never sent a request', async () => {
  const plain = chaos.play({ bytes: (socket) => void socket.end('HTTP/1.1 400 Bad Request\r\n\r\n') });
  await runElsewhere(`https://127.0.0.1:${chaos.port}/mcp`, undefined, 20);
  const silent = chaos.play({ bytes: (socket) => socket.resetAndDestroy() });
  await runElsewhere(`https://127.0.0.1:${chaos.port}/mcp`, undefined, 20);
  expect([plain.connections, plain.whole, silent.connections, silent.whole]).toEqual([20, 0, 20, 0]);
});

/** Last, because it checks all cases above again, when no further byte can arrive. */
test('F3 none of 1,760 faults is reported as not executed after the server received the request', async () => {
  await channel.close();
  await chaos.close();
  console.log(`F3: ${JSON.stringify(tally)}`);
  expect(claims.filter(({ ledger, notExecuted }) => ledger.whole > 1 || (notExecuted && ledger.bytes > 0))).toEqual([]);
  expect(tally.cases).toBeGreaterThanOrEqual(1_760);
});
