import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { LingeringClose } from './http-connections.js';

const limits = { lingering: 2, lingerMs: 1_000, lingerBytes: 1_000 };
const answer = Buffer.from('answer');
let server: Server;
let clock: FakeClock;
let lingering: LingeringClose;
const sockets: Socket[] = [];
beforeEach(async () => {
  clock = new FakeClock();
  lingering = new LingeringClose(clock, limits);
  server = createServer({ allowHalfOpen: true });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
  server.close();
});

/** Both ends of a connection; the client's stays open when ours ends. */
async function pair(): Promise<[ours: Socket, theirs: Socket]> {
  const accepted = once(server, 'connection');
  const theirs = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', allowHalfOpen: true });
  const [ours] = (await accepted) as [Socket];
  for (const socket of [ours, theirs]) socket.on('error', () => {});
  sockets.push(ours, theirs);
  return [ours, theirs];
}

/** All text that the client receives until our side ends. The client's side stays open. */
async function heard(socket: Socket): Promise<string> {
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk;
  });
  await once(socket, 'end');
  return text;
}

test('X19 our side ends, the client’s side is read until its end, and its data is discarded', async () => {
  const [ours, theirs] = await pair();
  let parsed = 0;
  ours.on('data', () => parsed++);
  lingering.end(ours, answer);
  theirs.write('x'.repeat(500));
  expect(await heard(theirs)).toBe('answer');
  expect([ours.destroyed, lingering.has(ours), lingering.size]).toEqual([false, true, 1]);
  theirs.end('x'.repeat(500));
  await once(ours, 'close');
  expect([ours.bytesRead, ours.readableLength, parsed]).toEqual([1_000, 0, 0]);
  expect([lingering.size, clock.pendingTimers]).toEqual([0, 0]);
});

test('X19 a lingering connection is cut at the first byte above the limit', async () => {
  const [ours, theirs] = await pair();
  lingering.end(ours, answer);
  theirs.write('x'.repeat(1_001));
  await once(ours, 'close');
  expect([ours.bytesRead, lingering.size]).toEqual([1_001, 0]);
});

test('X19 a lingering connection is cut when its time is over, and not before', async () => {
  const [ours] = await pair();
  lingering.end(ours, answer);
  clock.advance(999);
  expect(ours.destroyed).toBe(false);
  clock.advance(1);
  expect(ours.destroyed).toBe(true);
});

test('X19 beyond the maximum of lingering connections, one is cut when its answer is written', async () => {
  for (let i = 0; i < limits.lingering; i++) lingering.end((await pair())[0], answer);
  const [ours, theirs] = await pair();
  lingering.end(ours, answer);
  expect(lingering.size).toBe(limits.lingering);
  const [said] = await Promise.all([heard(theirs), once(ours, 'close')]);
  expect(said).toBe('answer');
});

test('a connection that Node would cut after its answer lingers instead, once', async () => {
  const [ours, theirs] = await pair();
  lingering.insteadOfCut({ socket: ours, complete: false });
  ours.write(answer);
  ours.destroySoon();
  expect(await heard(theirs)).toBe('answer');
  expect([ours.destroyed, lingering.size]).toEqual([false, 1]);
  ours.destroySoon();
  expect(ours.destroyed).toBe(true);
});

test('E12 a connection does not linger after the answer if the client has already sent its whole request', async () => {
  const [ours, theirs] = await pair();
  const request = { socket: ours, complete: false };
  lingering.insteadOfCut(request);
  request.complete = true;
  ours.write(answer);
  ours.destroySoon();
  const [said] = await Promise.all([heard(theirs), once(ours, 'close')]);
  expect([said, lingering.size]).toEqual(['answer', 0]);
});

test('closing cuts lingering connections, and from then on none lingers', async () => {
  const [first, theirs] = await pair();
  lingering.end(first, answer);
  expect(await heard(theirs)).toBe('answer');
  const second = (await pair())[0];
  lingering.insteadOfCut({ socket: second, complete: false });
  lingering.close();
  second.destroySoon();
  await Promise.all([once(first, 'close'), once(second, 'close')]);
  expect(lingering.size).toBe(0);
});
