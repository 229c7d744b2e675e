/** Routes of the listener that answer with a stream of events, read over real sockets. */
import { connect, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import type { Route, RouteEvents } from '../../src/gateway/http/routes.js';
import { eventually } from '../eventually.js';
import { key, send, start } from './http-harness.js';

/** A streaming route at `/events`, the clients it has, and how many of their streams have ended. */
function streaming(isPublic = false) {
  const clients: RouteEvents[] = [];
  const state = { clients, ended: 0 };
  const stream = (events: RouteEvents) => {
    clients.push(events);
    return () => void state.ended++;
  };
  const route: Route = isPublic
    ? { isPublic, stream }
    : { isPublic, checksHost: true, mayRead: ({ role }) => role === undefined, stream };
  return { state, routes: new Map([['/events', route]]) };
}

async function read(port: number, authorization = key): Promise<{ socket: Socket; text: () => string }> {
  const socket = connect(port, '127.0.0.1');
  let text = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  socket.on('error', () => {});
  socket.write(`GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: ${authorization}\r\n\r\n`);
  await eventually('the head is there', () => text.includes('\r\n\r\n'));
  return { socket, text: () => text };
}

test('events arrive one by one, and the route is notified once when its client has left', async () => {
  const { state, routes } = streaming();
  const { port } = await start({ routes });
  const { socket, text } = await read(port);
  expect(text()).toMatch(/^HTTP\/1.1 200 OK\r\nContent-Type: text\/event-stream/);
  const [events] = state.clients as [RouteEvents];
  expect(events.send('status', '{"n":1}')).toBe(true);
  await eventually('the first event is there', () => text().includes('event: status\ndata: {"n":1}\n\n'));
  events.send('status', 'two\nlines');
  await eventually('the second event is there', () => text().includes('data: two\ndata: lines\n\n'));
  socket.destroy();
  await eventually('its end is noticed', () => state.ended === 1);
  expect(events.send('status', 'late')).toBe(false);
  events.end();
  expect(state.ended).toBe(1);
});

test('a client that does not read loses its connection at the bound, and others continue', async () => {
  const { state, routes } = streaming();
  const { port, ingress } = await start({ routes, limits: { bufferedBytes: 256 * 1024 } });
  const slow = await read(port);
  slow.socket.pause();
  const other = await read(port);
  const [stuck, live] = state.clients as [RouteEvents, RouteEvents];
  const event = 'x'.repeat(64 * 1024);
  let sent = 0;
  while (stuck.send('big', event) && sent < 1_000) {
    sent++;
    await new Promise(setImmediate);
  }
  // The kernel buffers of a loopback connection are in addition to the bound.
  expect(sent).toBeLessThan(400);
  await eventually('the slow client is gone', () => state.ended === 1);
  expect([live.send('small', 'y'), ingress.counts.streams]).toEqual([true, 1]);
  await eventually('the other client reads on', () => other.text().includes('data: y\n\n'));
});

test('a stream ends with the key that opened it, and with the gateway', async () => {
  const { state, routes } = streaming();
  const { port, ingress } = await start({ routes });
  const first = await read(port);
  const bob = await read(port, 'Bearer key-of-bob');
  ingress.keysChanged((principal) => (principal.id === 'ann' ? undefined : principal));
  await eventually('the stream of the revoked key ends', () => first.text().endsWith('0\r\n\r\n'));
  expect([state.ended, bob.text().endsWith('0\r\n\r\n')]).toEqual([1, false]);
  await ingress.close(1_000);
  expect(state.ended).toBe(2);
  await eventually('the client reads the end', () => bob.text().endsWith('0\r\n\r\n'));
});

test('guards are checked before the stream, and HEAD gets only the head', async () => {
  const { state, routes } = streaming();
  const { port } = await start({ routes });
  const statuses = await Promise.all([
    send(port, { method: 'GET', path: '/events', key: undefined }),
    send(port, { method: 'GET', path: '/events', key: 'Bearer key-of-cyd' }),
    send(port, { method: 'POST', path: '/events' }),
    send(port, { method: 'HEAD', path: '/events' }),
  ]);
  expect(statuses.map(({ status }) => status)).toEqual([401, 403, 405, 200]);
  expect([statuses[3]?.headers['content-type'], state.clients.length]).toEqual(['text/event-stream', 0]);
});
