/** Fast and slow workers: a rate delays messages and loses none, and a worker that does not read does not slow down others. */
import { afterEach, describe, expect, test } from 'vitest';
import { resultBody } from '../../../src/broker/protocol/reply-body.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { RecordingWorker, request } from '../../contract/broker/transports.js';
import { eventually } from '../../eventually.js';
import { type PlaceOptions, type RawSocket, SocketPlace } from './socket-place.js';

const places: SocketPlace[] = [];
const open = async (options?: PlaceOptions): Promise<SocketPlace> => {
  const place = await SocketPlace.open(options);
  places.push(place);
  return place;
};
afterEach(async () => {
  for (const place of places.splice(0)) await place.close();
});
const MiB = 1024 * 1024;
const large = resultBody(Buffer.from(`{"text":"${'x'.repeat(3 * MiB)}"}`), 'legacy');
const ofSize = (bytes: number) => Buffer.from(`{"text":"${'x'.repeat(bytes)}"}`);

describe('bytes', () => {
  test('AC-BR6 above the rate of a worker are delayed, over all its connections together, and none is lost', async () => {
    const place = await open({ limits: { bytesPerSecond: 4 * MiB } });
    const [one, two] = [await place.connect(), await place.connect()];
    const startMs = performance.now();
    const calls = Array.from({ length: 20 }, (_, n) =>
      (n % 2 === 0 ? one : two).call(request(`k${n}`, { args: ofSize(MiB / 4) })),
    );
    await Promise.all(calls);
    const tookMs = performance.now() - startMs;
    // 5 MiB at 4 MiB/s; the burst of 250 ms passes at once, and the pause for the last message follows it.
    expect(tookMs).toBeGreaterThan(600);
    expect(place.service.calls).toHaveLength(20);
  });

  test('AC-BR6 that are sent to a worker count too', async () => {
    const place = await open({ limits: { bytesPerSecond: 4 * MiB } });
    const worker = new RecordingWorker();
    const connection = await place.connect(worker);
    await connection.call(request('k1'));
    const startMs = performance.now();
    expect(place.service.calls[0]?.session.send({ op: 'reply', key: 'k1', body: large })).toBe(true);
    await eventually('the reply', () => worker.replies.length === 1);
    await connection.call(request('k2'));
    // 3 MiB take 750 ms, of which the burst is free.
    expect(performance.now() - startMs).toBeGreaterThan(450);
  });

  test('AC-BR6 are added for each message and each key: many small messages count more than their length', async () => {
    const place = await open({ limits: { bytesPerSecond: MiB } });
    const connection = await place.connect();
    const keys = Array.from({ length: 256 }, () => 'k');
    const startMs = performance.now();
    for (let n = 0; n < 25; n++) connection.acknowledge(keys);
    await connection.call(request('k1'));
    // Messages that arrived in the same network read are read; the next one waits.
    await connection.call(request('k2'));
    // 28 KiB, but 6,400 keys of 128 bytes each: 780 ms, of which the burst is free.
    expect(performance.now() - startMs).toBeGreaterThan(450);
    expect(place.service.ackedKeys).toHaveLength(25 * 256);
  });

  test('AC-BR6 of one worker do not slow down another', async () => {
    const place = await open({ limits: { bytesPerSecond: MiB } });
    const [flood, other] = [await place.connect(), await place.connect(new RecordingWorker(), 'w2')];
    const startMs = performance.now();
    const flooded = flood.call(request('big', { args: ofSize(3 * MiB) })).then(() => performance.now() - startMs);
    for (let n = 0; n < 20; n++) await other.call(request(`k${n}`));
    const otherMs = performance.now() - startMs;
    const floodedMs = await flooded;
    expect(floodedMs).toBeGreaterThan(2_000);
    expect(otherMs < floodedMs).toBe(true);
  }, 20_000);
});

describe('a worker that does not read', () => {
  const stopReading = (raw: RawSocket) => raw.socket.pause();
  const fill = (place: SocketPlace, at = 0): number => {
    const session = place.service.joinedSessions[at];
    let sent = 0;
    while (sent < 100 && session?.send({ op: 'reply', key: `k${sent}`, body: large })) sent++;
    return sent;
  };

  test('B8 is sent no more than 16 MiB, and the others are served meanwhile', async () => {
    const place = await open({ limits: { bytesPerSecond: 1024 * MiB } });
    const slow = await place.admitted('w1');
    const other = await place.connect(new RecordingWorker(), 'w2');
    stopReading(slow);
    const sent = fill(place);
    expect(sent).toBe(5);
    expect(fill(place)).toBe(0);
    await expect(other.call(request('k1'))).resolves.toMatchObject({ owner: 'owner-1' });
    slow.socket.resume();
    await eventually('all that was sent', () => slow.messages.filter(({ op }) => op === 'reply').length === sent);
    await eventually('there is room again', () => fill(place) > 0);
  });

  test('B8 is cut after 60 s in which it read nothing', async () => {
    const clock = new FakeClock();
    const place = await open({ clock, limits: { bytesPerSecond: 1024 * MiB } });
    const slow = await place.admitted('w1');
    await eventually('the welcome is flushed', () => slow.messages.length === 1);
    stopReading(slow);
    expect(fill(place)).toBe(5);
    // Data that fits into the buffers of the kernel counts as read.
    await new Promise((resolve) => setTimeout(resolve, 300));
    clock.advance(59_000);
    expect(place.transport.connections).toBe(1);
    clock.advance(61_000);
    expect(place.transport.connections).toBe(0);
    expect(place.events.at(-1)).toMatchObject({ kind: 'disconnected', reason: 'slow_consumer' });
  });

  test('B8 is not read from either: its requests wait', async () => {
    const place = await open({ limits: { bytesPerSecond: 1024 * MiB } });
    const slow = await place.admitted('w1');
    stopReading(slow);
    fill(place);
    for (let n = 0; n < 10; n++) slow.send({ v: 1, op: 'call', key: `k${n}`, deadlineMs: 1_000, tool: 't', args: {} });
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(place.service.calls).toEqual([]);
    slow.socket.resume();
    await eventually('they are read', () => place.service.calls.length === 10);
  });

  test('progress does not use the room of replies', async () => {
    const place = await open({ limits: { bytesPerSecond: 1024 * MiB } });
    stopReading(await place.admitted('w1'));
    const [session] = place.service.joinedSessions;
    const params = Buffer.from(`{"message":"${'x'.repeat(60_000)}"}`);
    let sent = 0;
    while (sent < 1_000 && session?.send({ op: 'progress', key: 'k1', params })) sent++;
    expect(sent).toBeLessThan(140);
    expect(fill(place)).toBeGreaterThan(0);
  });
});

test('D-44 a worker whose requests are not answered is not read from above 256 of them', async () => {
  const place = await open();
  place.service.onCall = () => {};
  const raw = await place.admitted('w1');
  const argument = 'x'.repeat(1_000);
  for (let n = 0; n < 2_000; n++)
    raw.send({ v: 1, op: 'call', key: `k${n}`, deadlineMs: 1_000, tool: 't', args: { argument } });
  await eventually('256 came', () => place.service.calls.length >= 256);
  await new Promise((resolve) => setTimeout(resolve, 200));
  // Messages of the same network read are read with the 256th.
  expect(place.service.calls.length).toBeLessThan(400);
  const answered = new Set<unknown>();
  await eventually('all are read when the first are answered', () => {
    for (const call of place.service.calls) {
      if (answered.has(call)) continue;
      answered.add(call);
      call.receipt('owner-1');
    }
    return answered.size === 2_000;
  });
});

test('D-44 requests with one key count one by one, until each has its answer', async () => {
  const place = await open();
  place.service.onCall = () => {};
  const raw = await place.admitted('w1');
  const [few, all] = [300, 2_000];
  for (let n = 0; n < all; n++)
    raw.send({ v: 1, op: 'call', key: 'k', deadlineMs: 1_000, tool: 't', args: { argument: 'x'.repeat(1_000) } });
  await eventually('256 came', () => place.service.calls.length >= 256);
  await new Promise((resolve) => setTimeout(resolve, 200));
  const { length: first } = place.service.calls;
  expect(first).toBeLessThan(400);
  // One answer makes room for one request, not for all with its key.
  for (const call of place.service.calls.slice(0, first - 256 + 1)) call.receipt('owner-1');
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(place.service.calls.length).toBeLessThan(first + few);
  let answered = first - 256 + 1;
  await eventually('all are read when the first are answered', () => {
    for (; answered < place.service.calls.length; answered++) place.service.calls[answered]?.receipt('owner-1');
    return answered === all;
  });
});

test('pings are answered, and not kept for a worker that does not read', async () => {
  const place = await open({ limits: { bytesPerSecond: 1024 * MiB } });
  const raw = await place.admitted('w1');
  let pongs = 0;
  raw.socket.on('pong', () => {
    pongs++;
  });
  raw.socket.ping('x');
  await eventually('the pong', () => pongs === 1);
});
