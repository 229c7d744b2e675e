/** X19: messages that are too large or too many are refused without using memory. F5: only slow peers lose their connections. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { Socket } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { ClientSession, Exchange } from '../../src/gateway/exchange.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { eventually } from '../eventually.js';
import {
  listen,
  META,
  modern,
  modernHeaders,
  openSession,
  raw,
  rawSocket,
  rpc,
  send,
  start,
  statusOf,
} from './http-harness.js';

const MiB = 1024 * 1024;
const call = { name: 'x' };
const head = (lines: readonly string[], method = 'POST') =>
  [`${method} /mcp HTTP/1.1`, 'Host: localhost', 'Authorization: Bearer key-of-ann', ...lines, '', ''].join('\r\n');
const json = 'Content-Type: application/json';

describe('X19 sizes', () => {
  test('X19 a declared length above 4 MiB is refused before any byte of the body is read', async () => {
    const { router, port } = await start();
    for (const length of [4 * MiB + 1, 10 * 1024 * MiB, '9'.repeat(18)])
      expect(statusOf(await raw(port, head([json, `Content-Length: ${length}`])))).toBe(413);
    expect(router.reached).toBe(0);
  });

  test('X19 4 MiB pass, one byte more is refused whether declared or in chunks, and the client gets the reason', async () => {
    const { router, port } = await start();
    const fill = (bytes: number) => {
      const body = rpc(1, 'a', { _meta: META, pad: '' });
      return body.replace('"pad":""', `"pad":"${'x'.repeat(bytes - body.length)}"`);
    };
    const headers = modernHeaders('a');
    expect((await send(port, { headers, body: fill(4 * MiB) })).status).toBe(200);
    expect((await send(port, { headers, body: fill(4 * MiB + 1) })).status).toBe(413);
    const chunk = `${(64 * 1024).toString(16)}\r\n${'x'.repeat(64 * 1024)}\r\n`;
    const chunked = await raw(port, `${head([json, 'Transfer-Encoding: chunked']) + chunk.repeat(64)}1\r\nx\r\n`);
    expect(statusOf(chunked)).toBe(413);
    expect(router.reached).toBe(1);
  });

  test('X19 a body in a million single bytes is refused early', async () => {
    const { router, port } = await start();
    const before = process.memoryUsage().rss;
    const answer = await raw(port, head([json, 'Transfer-Encoding: chunked']) + '1\r\nx\r\n'.repeat(1_000_000));
    expect([statusOf(answer), router.reached]).toEqual([413, 0]);
    expect(process.memoryUsage().rss - before).toBeLessThan(96 * MiB);
    const body = rpc(1, 'a', { _meta: META });
    const pieces = [...body].map((letter) => `1\r\n${letter}\r\n`).join('');
    const headers = Object.entries(modernHeaders('a')).map(([name, value]) => `${name}: ${value}`);
    const taken = await raw(port, `${head([json, 'Transfer-Encoding: chunked', ...headers])}${pieces}0\r\n\r\n`);
    expect([statusOf(taken), router.handled[0]?.params?.toString()]).toEqual([200, JSON.stringify({ _meta: META })]);
  });

  test.each([
    ['one header of 64 KiB', ['X-A: '.padEnd(64 * 1024, 'x')]],
    ['a name of 64 KiB', [`Mcp-Name: ${'n'.repeat(64 * 1024)}`]],
    ['a million headers', Array.from({ length: 1_000_000 }, (_, i) => `a${i}:`)],
    ['a path of 64 KiB', []],
  ])('X19 %s: 431', async (name, lines) => {
    const { router, port } = await start();
    const text = head([json, ...lines]);
    const long = name.startsWith('a path') ? text.replace('/mcp', `/mcp/${'p'.repeat(64 * 1024)}`) : text;
    expect(statusOf(await raw(port, long))).toBe(431);
    expect(router.reached).toBe(0);
    expect((await modern(port, 'a')).status).toBe(200);
  });

  test('X19 a request that is not HTTP: 400, as JSON', async () => {
    const { port } = await start();
    for (const text of [
      'hello\r\n\r\n',
      head([json, 'Content-Length: -1']),
      head([json, 'Content-Length: 1', 'Content-Length: 2']),
    ]) {
      const answer = await raw(port, text);
      expect(statusOf(answer)).toBe(400);
      expect(JSON.parse(answer.slice(answer.indexOf('\r\n\r\n')))).toEqual({
        jsonrpc: '2.0',
        error: { code: -32600, message: expect.any(String) },
      });
    }
  });

  test('X19 a batch of more than 100: 400, and no message of it is forwarded', async () => {
    const { router, port } = await start();
    const headers = await openSession(port, '2025-03-26');
    const before = router.reached;
    const batch = (count: number) => `[${Array.from({ length: count }, (_, i) => rpc(i, 'a')).join()}]`;
    expect((await send(port, { headers, body: batch(101) })).status).toBe(400);
    expect((await send(port, { headers, body: batch(20_000) })).status).toBe(400);
    expect(router.reached).toBe(before);
    expect((await send(port, { headers, body: batch(100) })).status).toBe(200);
    expect(router.reached).toBe(before + 100);
  });
});

describe('X19 a client that still writes gets the reason of its refusal', () => {
  const KiB = 1024;
  const long = head([json, 'X-A: '.padEnd(80 * KiB, 'x')]);
  const chunks = `${KiB.toString(16)}\r\n${'x'.repeat(KiB)}\r\n`.repeat(256);

  const more = 'x'.repeat(KiB);

  /** Continues to write, with turns for the gateway in between, and reads afterwards. */
  async function lateReader(port: number, text: string): Promise<string> {
    const socket = rawSocket(port);
    socket.pause();
    const closed = new Promise((resolve) => socket.once('close', resolve));
    // A write after a received reset discards the answer.
    for (const piece of [text, more, more]) {
      await new Promise((resolve) => socket.write(piece, resolve));
      expect((await modern(port, 'a')).status).toBe(200);
    }
    let heard = '';
    socket.on('data', (chunk) => {
      heard += chunk.toString('latin1');
    });
    socket.resume();
    await closed;
    return heard;
  }

  test.each([
    ['headers of 80 KiB', long, 431],
    ['a body in chunks that is not JSON', head(['Transfer-Encoding: chunked']) + chunks, 415],
    ['a body of 1 GiB, of which 256 KiB come', head([json, `Content-Length: ${1024 * MiB}`]) + chunks, 413],
    ['bytes that are not HTTP', `hello\r\n\r\n${chunks}`, 400],
  ])('X19 %s: twenty times out of twenty', async (_name, text, status) => {
    const { port } = await start();
    for (let i = 0; i < 20; i++) {
      const heard = await lateReader(port, text);
      expect(statusOf(heard)).toBe(status);
      const body = heard.slice(heard.indexOf('\r\n\r\n') + 4);
      expect(JSON.parse(body)).toMatchObject({ error: { message: expect.any(String) } });
    }
  });

  const lastRequest = [json, 'Connection: close', `Content-Length: ${8 * MiB}`];
  test.each([
    ['a body of 8 MiB', head(lastRequest) + chunks, 413],
    ['a body of 8 MiB over HTTP/1.0', head([json, `Content-Length: ${8 * MiB}`]).replace('/1.1', '/1.0') + chunks, 413],
    ['a body that is not JSON', head(['Connection: close', `Content-Length: ${MiB}`]) + chunks, 415],
    ['a body after a wrong key', head(lastRequest).replace('key-of-ann', 'a-wrong-key') + chunks, 401],
    ['a body at an unknown path', head(lastRequest).replace('/mcp', '/none') + chunks, 404],
  ])('E12 %s on a connection that ends after it: the answer arrives', async (_name, text, status) => {
    const { port } = await start();
    for (let i = 0; i < 3; i++) expect(statusOf(await lateReader(port, text))).toBe(status);
  });

  test('X19 a client that writes without end is disconnected', async () => {
    const { port } = await start();
    const socket = rawSocket(port);
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.pause();
    const write = (): unknown => socket.write('x'.repeat(64 * KiB), (error) => (error ? socket.destroy() : write()));
    socket.write(head([json]).slice(0, -2));
    write();
    await closed;
    expect((await modern(port, 'a')).status).toBe(200);
  });

  test('X19 the gateway closes its side without waiting for a client that does not close', async () => {
    const clock = new FakeClock();
    const { port, ingress } = await start({ clock });
    const socket = new Socket({ allowHalfOpen: true }).connect(port, '127.0.0.1');
    socket.on('error', () => {});
    const answered = new Promise<string>((resolve) => socket.once('data', (bytes) => resolve(bytes.toString())));
    socket.write(long);
    expect(statusOf(await answered)).toBe(431);
    // No time passes on the clock, so neither lingering nor the last answers delay the close.
    await ingress.close(0);
    socket.destroy();
  });
});

describe('X19 numbers', () => {
  test('X19 10,000 unfinished sessions: a thousand are kept, the others are refused, and a session in use is not lost', async () => {
    const { port, ingress } = await start();
    const used = await openSession(port);
    await listen(port, { method: 'GET', headers: used });
    const before = process.memoryUsage().rss;
    const body = rpc(1, 'initialize', { protocolVersion: '2025-11-25', capabilities: {} });
    const text = head([json, `Content-Length: ${body.length}`]) + body;
    // Pipelined, because this test does not count connections.
    const socket = rawSocket(port);
    let [answered, refused] = [0, 0];
    socket.on('data', (chunk) => {
      const said = chunk.toString('latin1');
      answered += said.split('Mcp-Session-Id').length - 1;
      refused += said.split('HTTP/1.1 503').length - 1;
    });
    for (let i = 0; i < 100; i++)
      if (!socket.write(text.repeat(100))) await new Promise((next) => socket.once('drain', next));
    // A word may be cut in two by the end of a chunk.
    await eventually('all are answered', () => answered + refused > 9_900, 50_000);
    expect(answered).toBeLessThanOrEqual(999);
    expect(ingress.counts.sessions).toBe(1_000);
    expect((await send(port, { headers: used, body: rpc(2, 'a') })).status).toBe(200);
    expect(process.memoryUsage().rss - before).toBeLessThan(96 * MiB);
  }, 60_000);

  test('X19 requests that wait are bounded', async () => {
    const { router, port } = await start({ limits: { exchanges: 3 } });
    router.answers.set('tools/call', () => {});
    const waiting = [1, 2, 3].map((id) => modern(port, 'tools/call', call, {}, id));
    await router.until(() => router.handled.length === 3);
    const refused = await modern(port, 'tools/call', call);
    expect([refused.status, refused.headers['retry-after'], router.handled.length]).toEqual([503, '1', 3]);
    for (const exchange of router.handled) exchange.succeed('{}');
    await Promise.all(waiting);
    router.answers.delete('tools/call');
    expect((await modern(port, 'tools/call', call)).status).toBe(200);
  });

  test('X19 requests of one session are bounded, also those whose connection is gone', async () => {
    const { router, port, ingress } = await start({ limits: { exchangesPerSession: 3 } });
    router.answers.set('tools/call', () => {});
    const headers = await openSession(port);
    const waiting = [1, 2, 3].map((id) => send(port, { headers, body: rpc(id, 'tools/call') }));
    await router.until(() => router.handled.length === 4);
    const refused = await send(port, { headers, body: rpc(4, 'tools/call') });
    expect([refused.status, refused.json().error?.code, ingress.counts.exchanges]).toEqual([503, -31015, 3]);
    const other = await openSession(port);
    expect((await send(port, { headers: other, body: rpc(1, 'a') })).status).toBe(200);
    await send(port, { method: 'DELETE', headers });
    expect([(await Promise.all(waiting)).length, ingress.counts.exchanges]).toEqual([3, 0]);
  });

  test('X19 connections are bounded', async () => {
    const { port } = await start({ limits: { connections: 5 } });
    const sockets = Array.from({ length: 12 }, () => rawSocket(port));
    await eventually(
      'the connections above the limit are closed',
      () => sockets.filter(({ destroyed }) => destroyed).length === 7,
    );
    for (const socket of sockets) socket.destroy();
    await eventually('there is room again', () =>
      modern(port, 'a').then(
        () => true,
        () => false,
      ),
    );
  });

  const bobs = (port: number, id: number) =>
    send(port, {
      key: 'Bearer key-of-bob',
      body: rpc(id, 'tools/call', { ...call, _meta: META }),
      headers: modernHeaders('tools/call', call),
    });

  test('E12 a key that uses all open requests gets no more while another key needs one', async () => {
    const { router, port } = await start({ limits: { exchanges: 8 } });
    router.answers.set('tools/call', () => {});
    const anns = Array.from({ length: 8 }, (_, id) => modern(port, 'tools/call', call, {}, id));
    await router.until(() => router.handled.length === 8);
    const refused = await bobs(port, 1);
    expect([refused.status, refused.headers['retry-after']]).toEqual([503, '1']);
    for (const exchange of router.handled.slice(0, 2)) exchange.succeed('{}');
    await Promise.all(anns.slice(0, 2));
    expect((await modern(port, 'tools/call', call)).status).toBe(503);
    const second = bobs(port, 2);
    await router.until(() => router.handled.length === 9);
    expect(router.handled[8]?.client.principal.id).toBe('bob');
    for (const exchange of router.handled) exchange.succeed('{}');
    await Promise.all([second, ...anns]);
  });

  test('E12 neither late bodies nor a batch exceed the number of open requests', async () => {
    const { router, port, ingress } = await start({ limits: { exchanges: 4 } });
    router.answers.set('tools/call', () => {});
    const headers = await openSession(port, '2025-03-26');
    const batch = Array.from({ length: 10 }, (_, id) => rpc(id, 'tools/call', call));
    const body = rpc(1, 'tools/call', { ...call, _meta: META });
    const lines = Object.entries(modernHeaders('tools/call', call)).map(([name, value]) => `${name}: ${value}`);
    const text = head([json, `Content-Length: ${body.length}`, ...lines]);
    const late = Array.from({ length: 6 }, () => rawSocket(port));
    // Each is admitted, because no request is open yet.
    for (const socket of late) {
      const goesOn = new Promise((resolve) => socket.once('data', resolve));
      socket.write(text.replace('\r\n\r\n', '\r\nExpect: 100-continue\r\n\r\n'));
      await goesOn;
    }
    const answered = send(port, { headers, body: `[${batch.join()}]` });
    await router.until(() => router.handled.filter(({ method }) => method === 'tools/call').length >= 4);
    const refused = late.map((socket) => new Promise<Buffer>((resolve) => socket.once('data', resolve)));
    for (const socket of late) socket.write(body);
    for (const bytes of await Promise.all(refused)) expect(statusOf(bytes.toString())).toBe(503);
    expect(ingress.counts.exchanges).toBe(4);
    for (const exchange of router.handled) if (exchange.method === 'tools/call') exchange.succeed('{}');
    expect((await answered).text.match(/"id":\d/g)).toHaveLength(10);
    for (const socket of late) socket.destroy();
  });

  test('E12 a key with all connections loses an idle connection to another key, and keeps the busy ones', async () => {
    // Two places are for connections whose key is not known yet, six for keys.
    const { router, port } = await start({ limits: { connections: 8 } });
    router.answers.set(
      'tools/call',
      (exchange) => void (exchange.client.principal.id === 'bob' && exchange.succeed('{}')),
    );
    const ping = rpc(1, 'a', { _meta: META });
    const hang = rpc(1, 'tools/call', { ...call, _meta: META });
    const text = (body: string, headers: Record<string, string>) =>
      head([
        ...[json, `Content-Length: ${body.length}`],
        ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
      ]) + body;
    const busy = [1, 2, 3].map(() => rawSocket(port));
    for (const socket of busy) socket.write(text(hang, modernHeaders('tools/call', call)));
    await router.until(() => router.handled.length === 3);
    const idle = [1, 2, 3].map(() => rawSocket(port));
    for (const socket of idle) {
      const answered = new Promise((resolve) => socket.once('data', resolve));
      socket.write(text(ping, modernHeaders('a')));
      await answered;
    }
    const over = await raw(port, text(ping, modernHeaders('a')));
    expect([statusOf(over), over.toLowerCase()]).toEqual([503, expect.stringContaining('connection: close')]);
    expect((await bobs(port, 2)).status).toBe(200);
    await eventually('the oldest idle one is closed', () => idle[0]?.destroyed === true);
    expect([...busy, ...idle.slice(1)].map(({ destroyed }) => destroyed)).toEqual([false, false, false, false, false]);
  });

  test('X19 the events stored for lost streams are bounded, per session and in total', async () => {
    const limits = { eventBytesPerSession: 64 * 1024, eventBytes: 100 * 1024 };
    const { router, port, ingress } = await start({ limits });
    const sessions = [await openSession(port), await openSession(port), await openSession(port)];
    for (const headers of sessions) (await listen(port, { method: 'GET', headers })).hangUp();
    await eventually('the loss of the streams is noticed', () => ingress.counts.streams === 0);
    const kilobyte = JSON.stringify({ n: 'x'.repeat(1024) });
    for (const session of router.sessions)
      for (let i = 0; i < 200; i++) (session as ClientSession).notify('notifications/a', kilobyte);
    expect(ingress.storedEvents.bytes).toBeLessThanOrEqual(100 * 1024);
    const kept = await Promise.all(
      sessions.map(async (headers) => {
        const stream = await listen(port, { method: 'GET', headers });
        const session = router.sessions.find(({ id }) => id === headers['mcp-session-id']);
        session?.notify('notifications/end', '{}');
        return (await stream.until((text) => text.includes('notifications/end'))).split('notifications/a').length - 1;
      }),
    );
    const all = kept.reduce((sum, count) => sum + count);
    expect(Math.max(...kept)).toBeLessThanOrEqual(64);
    expect(all).toBeGreaterThan(80);
    expect(all).toBeLessThanOrEqual(100);
  });
});

/** Resolves when the other side has closed it. */
const closed = (socket: Socket) => new Promise<void>((resolve) => socket.once('close', () => resolve()));

describe('F5 slow peers', () => {
  const limits = { headerMs: 300, bodyMs: 300, checkEveryMs: 50 };
  const kinds: Readonly<Record<string, string>> = {
    'say nothing': '',
    'stop within the headers': 'POST /mcp HTTP/1.1\r\nHost: loc',
    'stop before the body': head([json, 'Content-Length: 100']),
    'stop within the body': `${head([json, 'Content-Length: 100'])}{"jsonrpc"`,
    'stop within a chunk': `${head([json, 'Transfer-Encoding: chunked'])}ff\r\n{"json`,
  };

  test('F5 a hundred peers that stop or send single bytes are closed by the limits while others are served', async () => {
    const { router, port } = await start({ limits });
    const texts = Object.values(kinds);
    const sockets = Array.from({ length: 100 }, (_, i) => {
      const socket = rawSocket(port);
      const text = texts[i % texts.length] as string;
      // Every other peer continues with one byte at a time.
      socket.write(text);
      if (i % 2 === 0) {
        const drip = setInterval(() => socket.write('a'), 40);
        socket.once('close', () => clearInterval(drip));
      }
      socket.resume();
      return socket;
    });
    const ends = Promise.all(sockets.map(closed));
    let served = 0;
    let isOver = false;
    const honest = (async () => {
      while (!isOver) {
        expect((await modern(port, 'a')).status).toBe(200);
        served++;
      }
    })();
    await ends;
    isOver = true;
    await honest;
    expect([served > 20, router.handled.length === served]).toEqual([true, true]);
  });

  test.each(Object.entries(kinds))('F5 peers that %s get 408 or nothing', async (_name, text) => {
    const { router, port } = await start({ limits });
    const answer = await raw(port, text, true);
    expect([0, 408]).toContain(statusOf(answer));
    expect(router.reached).toBe(0);
  });

  test('F5 a connection without a request is closed after its time', async () => {
    const { port } = await start({ limits: { idleSocketMs: 100 } });
    const body = rpc(1, 'a', { _meta: META });
    const headers = Object.entries(modernHeaders('a')).map(([name, value]) => `${name}: ${value}`);
    const text = await raw(port, head([json, ...headers, `Content-Length: ${body.length}`]) + body, true);
    expect(statusOf(text)).toBe(200);
  });

  test('F5 a client that waits long for its answer does not count as slow', async () => {
    const { router, port } = await start({ limits: { ...limits, idleSocketMs: 100, writeStallMs: 100 } });
    router.answers.set('tools/call', () => {});
    const waiting = modern(port, 'tools/call', call);
    await router.until(() => router.handled.length === 1);
    await new Promise((resolve) => setTimeout(resolve, 900));
    router.handled[0]?.succeed('{"late":true}');
    expect((await waiting).json().result).toEqual({ late: true });
  });

  /** Sends a call and reads nothing of its answer. */
  async function deaf(port: number) {
    const body = rpc(1, 'tools/call', { ...call, _meta: META });
    const headers = Object.entries(modernHeaders('tools/call', call)).map(([name, value]) => `${name}: ${value}`);
    const socket = rawSocket(port);
    socket.pause();
    socket.write(head([json, ...headers, `Content-Length: ${body.length}`]) + body);
    return socket;
  }

  test('F5 a client that reads nothing is disconnected, with one large answer or a stream', async () => {
    const { router, port, ingress } = await start({ limits: { writeStallMs: 200 } });
    const big = JSON.stringify('x'.repeat(32 * MiB));
    const cut: boolean[] = [];
    router.answers.set('tools/call', (exchange) => {
      if (router.handled.length === 1) exchange.succeed('{"a":', big, '}');
      else {
        exchange.signal.addEventListener('abort', () => cut.push(true));
        exchange.notify('notifications/progress', big);
      }
    });
    await deaf(port);
    await deaf(port);
    await router.until(() => router.handled.length === 2);
    await eventually('the stream is cut', () => cut.length === 1);
    expect(ingress.counts).toMatchObject({ exchanges: 0, streams: 0 });
  });

  test('F5 a stream without a reader buffers no more than its bound', async () => {
    const { router, port } = await start({ limits: { bufferedBytes: MiB } });
    router.answers.set('tools/call', () => {});
    await deaf(port);
    await router.until(() => router.handled.length === 1);
    const [exchange] = router.handled as [Exchange];
    const { signal } = exchange;
    const text = JSON.stringify('x'.repeat(256 * 1024));
    let told = 0;
    while (!signal.aborted && told < 1_000) {
      exchange.notify('notifications/progress', text);
      told++;
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect([signal.aborted, told < 100]).toEqual([true, true]);
  });
});

test('X19 an idle connection keeps neither its last request nor its answer in memory', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const held: WeakRef<object>[] = [];
  const onRequest = (message: unknown) => {
    const { request, response } = message as { request: object; response: object };
    held.push(new WeakRef(request), new WeakRef(response));
  };
  subscribe('http.server.request.start', onRequest);
  onTestFinished(() => void unsubscribe('http.server.request.start', onRequest));
  const { router, port } = await start();
  const body = rpc(1, 'a', { _meta: META });
  const headers = Object.entries(modernHeaders('a')).map(([name, value]) => `${name}: ${value}`);
  const socket = rawSocket(port);
  onTestFinished(() => void socket.destroy());
  const answered = new Promise((resolve) => socket.once('data', resolve));
  socket.write(head([json, ...headers, `Content-Length: ${body.length}`]) + body);
  expect(statusOf(String(await answered))).toBe(200);
  router.handled.length = 0;
  expect(held).toHaveLength(2);
  await eventually(
    'both are collected',
    () => {
      collect();
      return held.every((each) => each.deref() === undefined);
    },
    10_000,
  );
  expect([socket.closed, socket.readableEnded]).toEqual([false, false]);
});
