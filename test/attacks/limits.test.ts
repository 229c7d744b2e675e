/**
 * X19 with the gateway in a separate process, whose memory is only its own: it keeps at most 32 MiB.
 *
 * The allocator may keep freed memory once. So an attack above the limit is repeated: memory that the gateway itself keeps grows each
 * time. Bodies that wait are gathered in buffers that double: for them the memory in use is judged, and resident memory only as a whole.
 */
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { META } from '../fakes/messages.js';
import { rpc } from '../gateway/http-harness.js';
import { WatchedGateway } from './watched.js';

const MiB = 1024 * 1024;
const keptMiBMax = 32;
/** The peak, including garbage: 32 where nothing is buffered. The heap grows more at the first try than later. */
const firstGrewMiBMax = 96;
const grewMiBMax = 64;
const grewMiBMaxOf = (what: string): number => (what.startsWith('a body of') ? grewMiBMax : keptMiBMax);
/** Allowed growth of memory in addition to the 64 MiB that may wait. */
const waitingGrewMiBMax = 64;
/** Memory of a thousand sessions, as the runtime reports it. */
const sessionsMiBMax = 8;
const gateway = new WatchedGateway();
beforeAll(() => gateway.start());
afterAll(() => gateway.remove());

const head = (...lines: string[]) =>
  ['POST /mcp HTTP/1.1', 'Host: localhost', 'Content-Type: application/json', ...lines, '', ''].join('\r\n');
const initialize = JSON.stringify({
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-03-26', capabilities: {}, clientInfo: { name: 'x', version: '1' } },
});
const whole = (body: string, ...lines: string[]) => head(...lines, `Content-Length: ${body.length}`) + body;

/** Writes everything as fast as the connection accepts it, and resolves with the status of the first answer. */
function statusOf(pieces: Iterable<string>): Promise<number> {
  return new Promise((resolve) => {
    const socket: Socket = connect(gateway.port, '127.0.0.1');
    let text = '';
    const done = () => resolve(Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1] ?? 0));
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
      if (text.includes('\r\n\r\n')) socket.destroy();
    });
    socket.on('error', () => {});
    socket.on('close', done);
    const write = async () => {
      for (const piece of pieces) {
        if (socket.destroyed) return;
        if (!socket.write(piece))
          await new Promise<void>((next) => {
            socket.once('drain', next);
            socket.once('close', next);
          });
      }
    };
    void write();
  });
}

function* repeated(first: string, piece: string, count: number): Generator<string> {
  yield first;
  for (let i = 0; i < count; i++) yield piece;
}
const chunk = `${(64 * 1024).toString(16)}\r\n${'x'.repeat(64 * 1024)}\r\n`;
const headers = Array.from({ length: 10_000 }, (_, i) => `a${i}: b\r\n`).join('');
const batch = (count: number) =>
  `[${Array.from({ length: count }, () => '{"jsonrpc":"2.0","id":1,"method":"ping"}').join()}]`;

test.each<[string, () => Iterable<string>, number]>([
  ['a body with a declared length of 1 GiB', () => [head(`Content-Length: ${1024 * MiB}`)], 413],
  ['a body of 5 MiB', () => repeated(head(`Content-Length: ${5 * MiB}`), 'x'.repeat(MiB), 5), 413],
  ['a body of 16 MiB in chunks', () => repeated(head('Transfer-Encoding: chunked'), chunk, 256), 413],
  [
    'a body in a million single bytes',
    () => repeated(head('Transfer-Encoding: chunked'), '1\r\nx\r\n'.repeat(10_000), 100),
    413,
  ],
  [
    'a chunk with an extension of 8 MiB',
    () => repeated(`${head('Transfer-Encoding: chunked')}1;a=`, 'x'.repeat(MiB), 8),
    400,
  ],
  ['a million headers', () => repeated('POST /mcp HTTP/1.1\r\nHost: localhost\r\n', headers, 100), 431],
  ['a header named by 64 KiB', () => [head(`${'n'.repeat(64 * 1024)}: x`)], 431],
  ['a path of 64 KiB', () => [head().replace('/mcp', `/mcp/${'p'.repeat(64 * 1024)}`)], 431],
  [
    'trailers of 8 MiB',
    () => repeated(`${head('Transfer-Encoding: chunked')}2\r\n{}\r\n0\r\n`, `X: ${'x'.repeat(1_000)}\r\n`, 8_000),
    431,
  ],
])(
  'X19 %s is refused twenty times within 32 MiB',
  async (what, pieces, status) => {
    const said: number[] = [];
    let [grewMiB, keptMiB] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
    for (let tries = 0; tries < 2 && (keptMiB > keptMiBMax || grewMiB > grewMiBMaxOf(what)); tries++) {
      await gateway.begin();
      for (let i = 0; i < 10; i++) said.push(...(await Promise.all([statusOf(pieces()), statusOf(pieces())])));
      const seen = await gateway.read();
      [grewMiB, keptMiB] = [seen.grewMiB, seen.keptMiB];
      expect(seen.heldMiB).toBeLessThanOrEqual(keptMiBMax);
      expect(grewMiB).toBeLessThanOrEqual(firstGrewMiBMax);
      console.log(`X19 ${what}: ${grewMiB.toFixed(1)} MiB, kept ${keptMiB.toFixed(1)}, ${[...new Set(said)]}`);
    }
    // A client that writes longer than the gateway reads may lose the answer to the reset that follows.
    expect([what, said.filter((each) => each !== status && each !== 0 && each !== 431)]).toEqual([what, []]);
    expect(said).toContain(status);
    expect(keptMiB).toBeLessThanOrEqual(keptMiBMax);
    expect(grewMiB).toBeLessThanOrEqual(grewMiBMaxOf(what));
  },
  30_000,
);

/** The last session that a flood has opened: for the next flood the table may be full of sessions that are being opened. */
let session = '';

/**
 * Requests ten thousand sessions, one after the other, on one connection; most are refused. Resolves with the last opened session.
 */
async function openSessions(): Promise<string> {
  const socket = connect(gateway.port, '127.0.0.1');
  let answered = 0;
  let rest = '';
  socket.on('data', (bytes) => {
    const text = rest + bytes.toString('latin1');
    const found = text.split('Mcp-Session-Id: ');
    answered += bytes.toString('latin1').split('HTTP/1.1 ').length - 1;
    session = (found.length > 1 && /^[^\r]+\r/.exec(found.at(-1) ?? '')?.[0].trim()) || session;
    rest = text.slice(-64).includes('Mcp-Session-Id: ') ? '' : text.slice(-15);
  });
  const text = whole(initialize).repeat(100);
  for (let i = 0; i < 100; i++) if (!socket.write(text)) await new Promise((next) => socket.once('drain', next));
  await eventually('nearly all are answered', () => answered > 9_900, 50_000);
  socket.destroy();
  return session;
}

test('X19 10,000 unfinished sessions, and batches that are too long, are handled within 32 MiB', async () => {
  let [grewMiB, keptMiB] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  for (let tries = 0; tries < 2 && (keptMiB > keptMiBMax || grewMiB > grewMiBMax); tries++) {
    await gateway.begin();
    const session = await openSessions();
    for (const count of [101, 50_000]) {
      const said = await statusOf([whole(batch(count), `Mcp-Session-Id: ${session}`)]);
      expect([count, said]).toEqual([count, 400]);
    }
    const seen = await gateway.read();
    [grewMiB, keptMiB] = [seen.grewMiB, seen.keptMiB];
    console.log(`X19 sessions and batches: ${grewMiB.toFixed(1)} MiB, kept ${keptMiB.toFixed(1)}`);
    // A thousand sessions are kept, and the first flood already fills them.
    expect(seen.heldMiB).toBeLessThanOrEqual(sessionsMiBMax);
    expect(grewMiB).toBeLessThanOrEqual(firstGrewMiBMax);
  }
  expect(keptMiB).toBeLessThanOrEqual(keptMiBMax);
  expect(grewMiB).toBeLessThanOrEqual(grewMiBMax);
}, 120_000);

test('X19 60 clients that have each sent nearly 4 MiB and wait: 64 MiB are held, and others are served', async () => {
  await gateway.begin();
  const sockets = Array.from({ length: 60 }, () => connect(gateway.port, '127.0.0.1'));
  const body = Buffer.alloc(4 * MiB - 10, 'x');
  let refused = 0;
  for (const socket of sockets) {
    socket.on('error', () => {});
    socket.once('data', (bytes) => {
      if (bytes.toString('latin1').startsWith('HTTP/1.1 503')) refused++;
    });
    socket.write(head(`Content-Length: ${4 * MiB}`));
    socket.write(body);
  }
  await eventually('the clients without room are refused', () => refused > 40, 20_000);
  // Modern: the flood above leaves the session table full of sessions that are being opened, until their grace time is over.
  const discover = rpc(1, 'server/discover', { _meta: META });
  const headers = 'MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: server/discover';
  expect(await statusOf([whole(discover, headers)])).toBe(200);
  const { grewMiB, heldMiB } = await gateway.read();
  console.log(`X19 bodies that wait: ${grewMiB.toFixed(1)} MiB, held ${heldMiB.toFixed(1)}, ${refused} refused`);
  expect(grewMiB).toBeLessThanOrEqual(64 + waitingGrewMiBMax);
  expect(heldMiB).toBeLessThanOrEqual(64 + keptMiBMax / 2);
  for (const socket of sockets) socket.destroy();
  await eventually(
    'there is room again',
    async () => (await statusOf([whole(`{"a":"${'x'.repeat(3 * MiB)}"}`)])) === 400,
  );
}, 40_000);
