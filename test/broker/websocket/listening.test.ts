/** Which clients get a WebSocket of the broker, and which are refused. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { certificateNames, ownNames } from '../../../src/broker/websocket/own-names.js';
import { sleep, systemClock } from '../../../src/kernel/clock.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { eventually } from '../../eventually.js';
import { headersOf, keys, type PlaceOptions, SocketPlace } from './socket-place.js';

const places: SocketPlace[] = [];
const open = async (options?: PlaceOptions): Promise<SocketPlace> => {
  const place = await SocketPlace.open(options);
  places.push(place);
  return place;
};
afterEach(async () => {
  for (const place of places.splice(0)) await place.close();
});

test('AC-BR5 the connection above the limit is refused before it is a WebSocket, and a freed place is usable', async () => {
  const place = await open({ limits: { connections: 2 } });
  const [first] = [await place.admitted(), await place.admitted('w2')];
  const refused = await place.raw().closed;
  expect(refused).toEqual({ code: 503, text: 'the broker has broker.limits.connections connections\n' });
  expect(place.turnedAway).toEqual(['too_many_connections']);
  first?.socket.close();
  await eventually('the place is free', () => place.transport.connections === 1);
  await place.admitted();
  expect(place.transport.connections).toBe(2);
});

test('AC-BR5 sockets that are not upgraded take no room of workers, and a session can replace its connection', async () => {
  const place = await open({ limits: { connections: 2 } });
  for (let n = 0; n < 4; n++) await place.tcp();
  const first = await place.admitted('w1', 's1');
  await place.admitted('w2');
  expect(place.transport.connections).toBe(2);
  expect((await place.raw().closed).code).toBe(503);
  await place.admitted('w1', 's1');
  expect((await first.closed).code).toBe(4003);
  expect(place.transport.connections).toBe(2);
  expect(place.turnedAway).toEqual(['too_many_connections']);
});

test('a worker has at most 32 connections, and the next one is refused with the reason', async () => {
  const place = await open();
  for (let n = 0; n < 31; n++) await place.admitted('w1');
  // A session that connects again replaces its own connection.
  for (let n = 0; n < 2; n++) {
    place.raw({ headers: headersOf(keys.w1, 'again') });
    await eventually('it is admitted', () => place.events.filter(({ kind }) => kind === 'connected').length === 32 + n);
  }
  expect(await place.raw().closed).toEqual({ code: 503, text: 'this worker has 32 connections\n' });
  await place.admitted('w2');
});

describe('names', () => {
  test.each([
    ['evil.example', undefined],
    ['127.0.0.1.evil.example', undefined],
    ['127.0.0.1', 'http://evil.example'],
    ['127.0.0.1', 'null'],
  ])('X1 Host %s with Origin %s is refused, and the answer names the setting', async (host, origin) => {
    const place = await open();
    const headers = { host, ...(origin === undefined ? {} : { origin }) };
    const { code, text } = await place.raw({ headers }).closed;
    expect(code).toBe(403);
    expect(text).toContain(origin === undefined ? 'broker.listen.allowedHosts' : 'broker.listen.allowedOrigins');
    expect(place.turnedAway).toEqual([origin === undefined ? 'wrong_host' : 'wrong_origin']);
  });

  test.each([
    ['localhost', undefined, {}],
    ['127.0.0.1', 'http://localhost:1234', {}],
    ['broker.example', undefined, { allowedHosts: ['broker.example'] }],
    ['127.0.0.1', 'https://app.example', { allowedOrigins: ['https://app.example'] }],
  ])('X1 Host %s with Origin %s is accepted with %j', async (host, origin, listen) => {
    const place = await open({ listen: { port: 0, ...listen } });
    await place.raw({ headers: { host, ...(origin === undefined ? {} : { origin }) } }).opened;
  });

  test('a broker at 0.0.0.0 accepts the addresses and the name of its machine, and no others', () => {
    const isOurs = ownNames({ host: '0.0.0.0', cert: undefined, allowedHosts: [], allowedOrigins: [] });
    const addresses = Object.values(os.networkInterfaces()).flatMap((each) => each ?? []);
    for (const { address, family } of addresses)
      expect([address, isOurs(family === 'IPv6' ? `[${address}]:8384` : `${address}:8384`, undefined)]).toEqual([
        address,
        true,
      ]);
    expect(isOurs(`${os.hostname().toUpperCase()}:8384`, undefined)).toBe(true);
    for (const name of ['evil.example', '203.0.113.7', '', '0.0.0.0.evil.example', `${os.hostname()}.evil.example`])
      expect([name, isOurs(name, undefined)]).toEqual([name, false]);
  });

  test('the names of the certificate are accepted, wildcards for one label', () => {
    const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-names-'));
    const cert = certificate(folder, 'DNS:broker.example,DNS:*.lan.example,IP:203.0.113.7,IP:2001:db8::7');
    const pem = readFileSync(cert.cert);
    expect(certificateNames(pem)).toEqual(['broker.example', '*.lan.example', '203.0.113.7', '[2001:db8::7]']);
    const isOurs = ownNames({ host: '0.0.0.0', cert: pem, allowedHosts: [], allowedOrigins: [] });
    for (const name of [
      'broker.example:8384',
      'BROKER.example',
      'a.lan.example:1',
      '203.0.113.7',
      '[2001:db8::7]:8384',
    ])
      expect([name, isOurs(name, undefined)]).toEqual([name, true]);
    for (const name of [
      'a.b.lan.example',
      'lan.example',
      '.lan.example',
      'a.lan.example.evil',
      'example',
      'a.lan.example:',
    ])
      expect([name, isOurs(name, undefined)]).toEqual([name, false]);
    rmSync(folder, { recursive: true, force: true });
  });
});

test.each(['/', '/broker/', '/broker?x=1', '/mcp', '/Broker', '//broker'])(
  'no other path is served: %s',
  async (name) => {
    const place = await open();
    const { code, text } = await place.raw({ url: `ws://127.0.0.1:${place.port}${name}` }).closed;
    expect([code, text]).toEqual([404, 'the broker is at /broker\n']);
  },
);

test('a request that is no WebSocket gets 426', async () => {
  const place = await open();
  const response = await fetch(`http://127.0.0.1:${place.port}/broker`);
  expect([response.status, await response.text()]).toEqual([426, 'connect with a WebSocket\n']);
});

describe('a socket that is not upgraded', () => {
  const isClosed = (socket: { readonly destroyed: boolean; readonly closed: boolean }) =>
    socket.closed || socket.destroyed;

  test.each([
    ['that says nothing', ''],
    ['that never ends its header', 'GET /broker HTTP/1.1\r\nHost: 127.0.0.1\r\n'],
  ])('D-53 %s is cut after 5 s', async (_what, said) => {
    const clock = new FakeClock();
    const place = await open({ clock });
    const socket = await place.tcp();
    socket.write(said);
    socket.resume();
    await eventually('it arrived', () => clock.pendingTimers > 0);
    clock.advance(4_999);
    expect(isClosed(socket)).toBe(false);
    clock.advance(1);
    await eventually('it is cut', () => isClosed(socket));
    expect(place.turnedAway).toEqual(['upgrade_timeout']);
  });

  test('D-53 is bounded per address: the 129th is cut at once, and another is accepted when one leaves', async () => {
    const place = await open();
    const sockets = [];
    for (let n = 0; n < 128; n++) sockets.push(await place.tcp());
    const more = await place.tcp();
    more.resume();
    await eventually('it is cut', () => isClosed(more));
    expect(place.turnedAway).toEqual(['too_many_connections']);
    sockets[0]?.destroy();
    await eventually('there is room', async () => {
      const raw = place.raw();
      await Promise.race([raw.opened, raw.closed]);
      return raw.socket.readyState === raw.socket.OPEN;
    });
  });

  test('D-53 may send headers of 16 KiB, and no more', async () => {
    const place = await open();
    expect((await place.raw({ headers: { x: 'x'.repeat(20_000) } }).closed).code).toBe(431);
  });
});

describe('messages', () => {
  test('D-53 are never compressed', async () => {
    const place = await open();
    const raw = place.raw({ perMessageDeflate: true });
    await raw.opened;
    expect(raw.socket.extensions).toBe('');
  });

  test('D-53 above 4 MiB end their connection, and no other', async () => {
    const place = await open();
    const [large, other] = [await place.admitted(), await place.admitted('w2')];
    large.send('x'.repeat(4 * 1024 * 1024 + 1));
    expect((await large.closed).code).toBe(1009);
    other.send({ v: 1, op: 'manifest', id: 'm1' });
    await eventually('the other is served', () => other.messages.some(({ op }) => op === 'manifest'));
  });

  test('in a few parts are read; in hundreds they end the connection', async () => {
    const place = await open();
    const raw = await place.admitted();
    const text = JSON.stringify({ v: 1, op: 'manifest', id: 'm1' });
    const send = (parts: number) => {
      for (let n = 0; n < parts - 1; n++) raw.socket.send(text.slice(n, n + 1), { fin: false });
      raw.socket.send(text.slice(parts - 1), { fin: true });
    };
    send(5);
    await eventually('it is read', () => raw.messages.some(({ op }) => op === 'manifest'));
    for (let n = 0; n < 300; n++) raw.socket.send(' ', { fin: false });
    expect((await raw.closed).code).toBe(1008);
  });

  test('of one turn leave in one write', async () => {
    const place = await open();
    const raw = await place.admitted();
    let chunks = 0;
    const below = (raw.socket as unknown as { _socket: { on(name: 'data', count: () => void): void } })._socket;
    below.on('data', () => {
      chunks++;
    });
    const [session] = place.service.joinedSessions;
    for (let n = 0; n < 100; n++)
      session?.send({ op: 'reply', key: `k${n}`, body: Buffer.from('{"era":"legacy","result":{}}') });
    await eventually('all came', () => raw.messages.filter(({ op }) => op === 'reply').length === 100);
    expect(chunks).toBeLessThanOrEqual(3);
  });
});

describe('TLS', () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-listen-'));

  test('is needed at an address that other machines reach, unless `insecure` is set', async () => {
    await expect(open({ listen: { host: '0.0.0.0', port: 0 } })).rejects.toMatchObject({
      ...{ code: 'invalid_spec', details: { field: 'broker.listen.tls' } },
    });
    const place = await open({ listen: { host: '0.0.0.0', port: 0, insecure: true } });
    expect(place.transport.url).toMatch(/^ws:\/\/127\.0\.0\.1:\d+\/broker$/);
  });

  test('uses replaced files for new connections, also their names', async () => {
    const clock = new FakeClock();
    const tls = certificate(folder, 'IP:127.0.0.1');
    const place = await open({ clock, listen: { host: '0.0.0.0', port: 0, tls } });
    const first = place.raw({ ca: readFileSync(tls.cert) });
    await first.opened;
    certificate(folder, 'IP:127.0.0.1,DNS:other.example');
    clock.advance(5_000);
    await place.raw({ ca: readFileSync(tls.cert), headers: { host: 'other.example' } }).opened;
    writeFileSync(tls.key, 'no key');
    clock.advance(5_000);
    expect(place.events).toContainEqual({ kind: 'problem', error: expect.objectContaining({ code: 'invalid_spec' }) });
    await place.raw({ ca: readFileSync(tls.cert) }).opened;
    // The limit of 5 s holds for sockets that are not upgraded.
    expect([first.socket.readyState, place.turnedAway]).toEqual([first.socket.OPEN, []]);
  });

  test('cuts a socket in its handshake at once when the broker closes', async () => {
    const tls = certificate(folder, 'IP:127.0.0.1');
    const place = await open({ listen: { host: '0.0.0.0', port: 0, tls } });
    const socket = await place.tcp();
    let isCut = false;
    const cut = new Promise<void>((resolve) => {
      socket.resume().once('close', () => {
        isCut = true;
        resolve();
      });
    });
    const closing = place.transport.close();
    // A limit of TLS would cut it after 5 s.
    await Promise.race([cut, sleep(systemClock, 4_500)]);
    expect(isCut).toBe(true);
    await closing;
  });

  test('serves wss, and names a file that cannot be used', async () => {
    const tls = certificate(folder, 'IP:127.0.0.1');
    const place = await open({ listen: { host: '0.0.0.0', port: 0, tls } });
    expect(place.transport.url).toMatch(/^wss:/);
    const raw = place.raw({ ca: readFileSync(tls.cert) });
    await raw.opened;
    const cases = [
      [{ cert: path.join(folder, 'nowhere'), key: tls.key }, 'broker.listen.tls.cert'],
      [{ cert: tls.cert, key: tls.cert }, 'broker.listen.tls'],
    ] as const;
    for (const [files, field] of cases)
      await expect(open({ listen: { port: 0, tls: files } })).rejects.toMatchObject({
        ...{ code: 'invalid_spec', details: { field } },
      });
    rmSync(folder, { recursive: true, force: true });
  });
});

test('a port that is in use is an error with that reason', async () => {
  const place = await open();
  await expect(open({ listen: { port: place.port } })).rejects.toMatchObject({
    ...{ code: 'connect_failed', details: { reason: 'EADDRINUSE' } },
  });
});

function certificate(folder: string, names: string): { readonly cert: string; readonly key: string } {
  const [cert, key] = [path.join(folder, 'cert.pem'), path.join(folder, 'key.pem')];
  const subject = ['-subj', '/CN=hostler test', '-addext', `subjectAltName=${names}`];
  const make = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  execFileSync('openssl', [...make, '-keyout', key, '-out', cert, ...subject], { stdio: 'pipe' });
  return { cert, key };
}
