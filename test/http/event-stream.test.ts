import type { ServerResponse } from 'node:http';
import { afterEach, describe, expect, test } from 'vitest';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { randomInt, seededRandom } from '../../src/kernel/random.js';
import { openStreamableHttp } from '../../src/transports/http/streamable-http-channel.js';
import { legacyEra, modernEra } from '../fakes/eras.js';
import { RecordingListener, request } from '../fakes/http-listener.js';
import { type Answer, events, result, rpcError, startServer } from '../fakes/http-server.js';
import { until } from '../fakes/http-until.js';

const MODERN = { era: modernEra, version: '2026-07-28' } as const;
const LEGACY = { era: legacyEra, version: '2025-11-25' } as const;

const open: Array<{ close(): unknown }> = [];
afterEach(async () => {
  for (const thing of open.splice(0).reverse()) await thing.close();
});

async function connect(answer: Answer, agreement: typeof MODERN | typeof LEGACY = LEGACY) {
  const server = await startServer(answer);
  const clock = new FakeClock();
  const channel = openStreamableHttp({ server: 'fake', url: server.url }, { clock, random: seededRandom(7) });
  const heard = new RecordingListener();
  channel.start(heard);
  channel.adopt(agreement);
  open.push(server, channel);
  return { server, channel, heard, clock };
}

const note = (n: number) => `{"jsonrpc":"2.0","method":"notifications/n","params":${n}}`;
const event = (data: unknown, id?: string) =>
  `${id === undefined ? '' : `id: ${id}\n`}data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`;
const cut = (response: ServerResponse) => response.socket?.destroy();

test('an answer cut at each byte arrives whole', async () => {
  const parts = (id: number | undefined) => Buffer.from(`: ping\r\n\r\nid: 1\r\n${event(note(5))}${event(result(id))}`);
  let at = 0;
  const { channel, heard } = await connect((got, response) => {
    const bytes = parts(got.id);
    events(response);
    response.write(bytes.subarray(0, at));
    setImmediate(() => response.end(bytes.subarray(at)));
  });
  const length = parts(100).length;
  for (at = 1; at < length; at++) {
    const frame = request('tools/call');
    channel.send(frame);
    await heard.settled(frame);
    expect(heard.messages.splice(0).map((message) => message.kind)).toEqual(['notification', 'result']);
  }
  expect(heard.failures).toEqual([]);
  expect(channel.counters.junk).toBe(0);
});

describe('legacy: a stream that ends before its answer', () => {
  const polling: Answer = (got, response) => {
    events(response);
    if (got.method === 'POST') response.end('id: p1\nretry: 500\ndata:\n\n');
    else response.write(event(result(1_000_000), 'x'));
  };

  test('is resumed from the last id, exactly after the time the server asked for', async () => {
    const { server, channel, heard, clock } = await connect((got, response) => {
      events(response);
      if (got.method === 'POST') response.end(`id: p1\nretry: 500\ndata:\n\n${event(note(1), 'p2')}`);
      else response.end(event(note(2), 'p3') + event(result(frame.id), 'p4'));
    });
    const frame = request('tools/call');
    channel.send(frame);
    await until(() => frame.phase !== 'queued' && clock.pendingTimers === 1);
    clock.advance(499);
    expect(clock.pendingTimers).toBe(1);
    clock.advance(1);
    expect(clock.pendingTimers).toBe(0);
    await heard.settled(frame);
    expect(server.received[1]).toMatchObject({ method: 'GET', headers: { 'last-event-id': 'p2' } });
    expect(heard.messages.map(({ text, origin }) => [text, origin === frame])).toEqual([
      ['1', true],
      ['2', true],
      ['{}', true],
    ]);
    expect(clock.pendingTimers).toBe(0);
  });

  test('is resumed also when the connection broke', async () => {
    const { channel, heard, clock } = await connect((got, response) => {
      events(response);
      if (got.method === 'POST') response.write(event(note(1), 'a'), () => cut(response));
      else response.end(event(result(frame.id), 'b'));
    });
    const frame = request('tools/call');
    channel.send(frame);
    await until(() => frame.phase !== 'queued' && clock.pendingTimers === 1);
    clock.advance(1_000);
    await heard.settled(frame);
    expect(heard.failures).toEqual([]);
  });

  test('may be polled many times, after empty polls with growing waits of up to a second', async () => {
    let polls = 0;
    const { server, channel, heard, clock } = await connect((got, response) => {
      events(response);
      if (got.method === 'POST') response.end('id: 0\nretry: 200\ndata:\n\n');
      else if (++polls < 20) response.end(': nothing yet\n\n');
      else response.end(event(result(frame.id)));
    });
    const frame = request('tools/call');
    channel.send(frame);
    while (!heard.answerTo(frame)) {
      await until(() => (frame.phase !== 'queued' && clock.pendingTimers > 0) || heard.answerTo(frame) !== undefined);
      clock.advance(100);
    }
    expect(polls).toBe(20);
    expect(clock.nowMs()).toBeGreaterThan(8_000);
    expect(clock.nowMs()).toBeLessThanOrEqual(20_000);
    expect(server.received.slice(1).every((entry) => entry.headers['last-event-id'] === '0')).toBe(true);
  });

  test('is a lost request when no event id was received', async () => {
    const { channel, heard } = await connect((_got, response) => {
      events(response).end(event(note(1)));
    });
    const frame = request('tools/call');
    channel.send(frame);
    expect(await heard.settled(frame)).toMatchObject({ code: 'transport', details: { execution: 'uncertain' } });
  });

  test('is a lost request when the server will not resume it', async () => {
    const { channel, heard, clock } = await connect((got, response) => {
      if (got.method === 'POST') polling(got, response, response.req);
      else response.writeHead(405).end();
    });
    const frame = request('tools/call');
    channel.send(frame);
    await until(() => frame.phase !== 'queued' && clock.pendingTimers === 1);
    clock.advance(500);
    expect(await heard.settled(frame)).toMatchObject({ details: { httpStatus: 405, execution: 'uncertain' } });
  });

  test('keeps the hint of the error that ended it', async () => {
    const { channel, heard, clock } = await connect((got, response) => {
      if (got.method === 'POST') polling(got, response, response.req);
      else response.writeHead(401).end();
    });
    const frame = request('tools/call');
    channel.send(frame);
    await until(() => frame.phase !== 'queued' && clock.pendingTimers === 1);
    clock.advance(500);
    expect(await heard.settled(frame)).toMatchObject({
      code: 'needs_reauth',
      hint: expect.stringContaining('token'),
      details: { httpStatus: 401, execution: 'uncertain' },
    });
  });

  test('can be cancelled while it waits, and is then not requested again', async () => {
    const { server, channel, clock } = await connect(polling);
    const frame = request('tools/call');
    channel.send(frame);
    await until(() => frame.phase !== 'queued' && clock.pendingTimers === 1);
    expect(channel.withdraw(frame)).toBe('notify');
    expect(clock.pendingTimers).toBe(0);
    expect(server.received).toHaveLength(1);
  });

  test('an answer to another request on the resumed stream is dropped', async () => {
    const { server, channel, heard, clock } = await connect(polling);
    const frame = request('tools/call');
    channel.send(frame);
    await until(() => frame.phase !== 'queued' && clock.pendingTimers === 1);
    clock.advance(500);
    await server.until(() => server.received.length === 2);
    await until(() => channel.counters.junk === 1);
    expect(heard.messages).toEqual([]);
  });
});

describe('modern', () => {
  test.each(['ends', 'breaks'])('a stream that %s is a lost request, never resumed', async (how) => {
    const { server, channel, heard, clock } = await connect((_got, response) => {
      events(response).write(event(note(1), 'a'), () => (how === 'ends' ? response.end() : cut(response)));
    }, MODERN);
    const frame = request('tools/call');
    channel.send(frame);
    expect(await heard.settled(frame)).toMatchObject({ code: 'transport', details: { execution: 'uncertain' } });
    expect(clock.pendingTimers).toBe(0);
    expect(server.received).toHaveLength(1);
  });

  test('there is no server stream', async () => {
    const { server, channel, heard } = await connect((got, response) => {
      events(response).end(event(result(got.id)));
    }, MODERN);
    channel.openServerStream();
    const frame = request('tools/call');
    channel.send(frame);
    await heard.settled(frame);
    expect(server.received.map((entry) => entry.method)).toEqual(['POST']);
  });
});

test('an event of 10 MiB is refused, and the next call is served', async () => {
  const { channel, heard } = await connect((got, response) => {
    events(response);
    if (got.rpcMethod === 'big') {
      response.write('id: 1\n');
      response.end(event(result(got.id, 'x'.repeat(10 * 1024 * 1024))));
    } else response.end(event(result(got.id)));
  });
  const [big, next] = [request('big'), request('next')];
  channel.send(big);
  expect(await heard.settled(big)).toMatchObject({
    code: 'result_too_large',
    details: { reason: 'frame_too_large', execution: 'uncertain' },
  });
  channel.send(next);
  await heard.settled(next);
  expect(heard.answerTo(next)).toBeDefined();
});

describe('the server stream', () => {
  test('a server without one gets no further requests for it', async () => {
    const { server, channel, clock } = await connect((got, response) => {
      response.writeHead(got.method === 'GET' ? 405 : 202).end();
    });
    channel.openServerStream();
    await server.until(() => server.received.length === 1);
    await new Promise((resolve) => setImmediate(resolve));
    expect(clock.pendingTimers).toBe(0);
  });

  test('messages on it have no origin', async () => {
    const { channel, heard } = await connect((_got, response) => {
      events(response).write(': keep-alive\n\n');
      response.write(event(note(1)));
    });
    channel.openServerStream();
    channel.openServerStream();
    await heard.until(() => heard.messages.length === 1);
    expect(heard.messages[0]?.origin).toBeUndefined();
  });

  test('an answer on it settles nothing: it is dropped and counted', async () => {
    let finish: (() => void) | undefined;
    const { channel, heard } = await connect((got, response) => {
      events(response);
      if (got.method === 'POST') finish = () => response.end(event(result(got.id, 'own')));
      else response.write(event(result(frame.id, 'forged')) + event(rpcError(frame.id, -32_000)) + event(note(1)));
    });
    const frame = request('tools/call');
    channel.send(frame);
    await until(() => finish !== undefined);
    channel.openServerStream();
    await heard.until(() => heard.messages.length > 0);
    expect(heard.messages.map((message) => message.kind)).toEqual(['notification']);
    expect(channel.counters.junk).toBe(2);
    finish?.();
    expect(await heard.settled(frame)).toMatchObject({ text: '"own"', origin: frame });
  });

  test.each([
    ['3000', 3_000],
    ['600000', 60_000],
  ])('retry: %s is respected, up to a minute', async (retry, waitMs) => {
    const { server, channel, clock } = await connect((_got, response) => {
      events(response).end(`retry: ${retry}\n${event(note(1))}`);
    });
    channel.openServerStream();
    for (let round = 1; round <= 3; round++) {
      await until(() => clock.pendingTimers === 1);
      expect(server.received).toHaveLength(round);
      clock.advance(waitMs - 1);
      expect(clock.pendingTimers).toBe(1);
      clock.advance(1);
      expect(clock.pendingTimers).toBe(0);
    }
  });

  test.each([
    ['a comment', ': nothing\n\n'],
    ['an id', 'id: 7\ndata:\n\n'],
    ['nothing', ''],
  ])('a stream that ends after %s is requested with growing waits, until it has data', async (_name, text) => {
    let speaks = false;
    const { server, channel, clock } = await connect((_got, response) => {
      events(response).end(`retry: 0\n\n${text}${speaks ? event(note(1)) : ''}`);
    });
    channel.openServerStream();
    const again = async () => {
      await until(() => clock.pendingTimers === 1);
      const beforeMs = clock.nowMs();
      while (clock.pendingTimers === 1) clock.advance(10);
      return clock.nowMs() - beforeMs;
    };
    for (let round = 0; round < 10; round++) await again();
    let waitedMs = 0;
    for (let round = 0; round < 20; round++) waitedMs += await again();
    // Spread evenly up to 30 s; ten a second would be 2 s in all.
    expect(waitedMs).toBeGreaterThan(100_000);
    expect(waitedMs).toBeLessThanOrEqual(20 * 30_000);
    expect(server.received.length).toBeLessThanOrEqual(31);
    speaks = true;
    await again();
    await again();
    expect(await again()).toBe(1_000);
  });

  test('after 5xx it is requested with growing waits; close ends it', async () => {
    const { server, channel, clock } = await connect((_got, response) => response.writeHead(502).end());
    channel.openServerStream();
    let waitedMs = 0;
    for (let attempt = 1; attempt <= 6; attempt++) {
      await until(() => clock.pendingTimers === 1);
      expect(server.received).toHaveLength(attempt);
      const beforeMs = clock.nowMs();
      while (clock.pendingTimers === 1) clock.advance(10);
      waitedMs = clock.nowMs() - beforeMs;
      expect(waitedMs).toBeGreaterThanOrEqual(1_000);
    }
    expect(waitedMs).toBeLessThanOrEqual(30_000);
    await channel.close();
    expect(clock.pendingTimers).toBe(0);
  });

  test('F4: over 2,000 drops at random bytes no message is lost or delivered twice', async () => {
    const drops = 2_000;
    const random = seededRandom(4711);
    const log: string[] = [];
    let dropped = 0;
    const { channel, heard, clock } = await connect((got, response) => {
      let next = got.headers['last-event-id'] === undefined ? 0 : Number(got.headers['last-event-id']) + 1;
      const last = dropped === drops;
      const count = last ? log.length - next : randomInt(random, 0, 4);
      let text = 'retry: 100\n\n';
      for (let i = 0; i < count; i++, next++) {
        if (next >= log.length) log.push(note(next));
        text += event(log[next], String(next));
      }
      const bytes = Buffer.from(text);
      events(response);
      if (last) return response.write(bytes);
      dropped++;
      // A cut in the middle of an event, or a clean end.
      if (random() < 0.2) return response.end(bytes);
      return response.write(bytes.subarray(0, randomInt(random, 0, bytes.length)), () => cut(response));
    });
    channel.openServerStream();
    while (dropped < drops || heard.messages.length < log.length) {
      await until(() => clock.pendingTimers > 0 || (dropped === drops && heard.messages.length >= log.length));
      clock.advance(60_000);
    }
    expect(log.length).toBeGreaterThan(1_000);
    expect(heard.messages.map((message) => message.text)).toEqual(log.map((_text, n) => String(n)));
    expect(channel.counters.junk).toBe(0);
  }, 60_000);
});
