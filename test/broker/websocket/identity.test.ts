/** A connection belongs to the worker of its key while the key is valid, whatever its messages claim. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import type { BrokerEvent } from '../../../src/broker/broker-events.js';
import { createBroker } from '../../../src/broker/serve-workers.js';
import { openWebSocketConnection } from '../../../src/broker/websocket/worker-connection.js';
import { digestOf } from '../../../src/config/keys.js';
import { createHost } from '../../../src/host/host.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { RecordingWorker, workerEntry } from '../../contract/broker/transports.js';
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

test('AC-BR12 a worker that claims another name or role gets those of its key', async () => {
  const place = await open();
  const claims = { 'hostler-worker': 'w2', 'hostler-role': 'admin' };
  const raw = place.raw({ headers: { ...headersOf(keys.w1, 's1'), ...claims } });
  await eventually('the welcome', () => raw.messages.length === 1);
  expect(raw.messages).toEqual([{ v: 1, op: 'welcome', worker: 'w1', role: 'reader', storeId: 'store-1' }]);
  expect(place.service.joinedSessions).toMatchObject([{ id: 's1', name: 'w1', epoch: 'w1-epoch' }]);
});

test.each([
  ['without a session', { 'hostler-session': '' }, 400, 'hostler-session: is not valid', 'bad_session'],
  ['with a session that is a path', { 'hostler-session': '../x' }, 400, 'hostler-session: is not valid', 'bad_session'],
  ['without a key', { authorization: '' }, 401, 'the key is unknown', 'unknown_key'],
  ['with another key', { authorization: 'Bearer other' }, 401, 'the key is unknown', 'unknown_key'],
])('a worker %s is refused, and the answer says why', async (_what, headers, status, why, reason) => {
  const place = await open();
  const raw = place.raw({ headers });
  expect(await raw.closed).toEqual({ code: status, text: expect.stringContaining(why) });
  expect(place.turnedAway).toEqual([reason]);
  expect(place.service.joinedSessions).toEqual([]);
});

test('a key with characters that a header cannot have is refused as unknown', async () => {
  const { transport } = await open();
  const opener = openWebSocketConnection({ url: transport.url, key: 'ä\nkey: x', clock: systemClock });
  await expect(new RecordingWorker().connect(opener)).rejects.toMatchObject({ code: 'unauthenticated' });
});

test('AC-BR13 a key that expires cuts its connections at that moment', async () => {
  const clock = new FakeClock();
  const expiresAtMs = clock.date().getTime() + 15_000;
  const place = await open({ clock, entry: { expiresAtMs } });
  const [expiring, other] = [await place.admitted('w1'), await place.admitted('w2')];
  clock.advance(14_999);
  expect(place.transport.connections).toBe(2);
  clock.advance(1);
  expect((await expiring.closed).code).toBe(4002);
  expect(other.socket.readyState).toBe(other.socket.OPEN);
  const [session] = place.service.joinedSessions;
  expect(session?.identity()).toBeUndefined();
});

test('AC-BR13 changed keys cut connections of revoked keys at once, and no others', async () => {
  const place = await open();
  const [revoked, other] = [await place.admitted('w1'), await place.admitted('w2')];
  place.identities.replace(new Map([['w2', workerEntry('w2', keys.w2, { role: 'another' })]]));
  expect((await revoked.closed).code).toBe(4002);
  expect(other.socket.readyState).toBe(other.socket.OPEN);
  expect(place.service.joinedSessions[1]?.identity()).toMatchObject({ role: 'another' });
  expect(place.events.filter(({ kind }) => kind === 'disconnected')).toMatchObject([
    { worker: 'w1', reason: 'revoked' },
  ]);
});

test('AC-BR13 a name with a new epoch is another worker: the old connection is cut, and its session gets nothing more', async () => {
  const place = await open();
  const before = await place.admitted('w1', 's1');
  const [session] = place.service.joinedSessions;
  place.identities.replace(new Map([['w1', workerEntry('w1', keys.w1, { worker: { name: 'w1', epoch: 'later' } })]]));
  expect((await before.closed).code).toBe(4002);
  const after = await place.admitted('w1', 's1');
  expect(session?.identity()).toBeUndefined();
  expect(session?.send({ op: 'reply', key: 'k1', body: Buffer.from('{"era":"legacy","result":{}}') })).toBe(false);
  expect(after.messages).toHaveLength(1);
});

test('AC-BR14 the old connection of a session has ended before anything of the new one is read', async () => {
  const place = await open();
  const kinds = () => place.events.map(({ kind }) => kind);
  let order: string[] = [];
  place.service.onCall = () => {
    order = [...kinds(), 'call'];
  };
  const first = await place.admitted('w1', 's1');
  const second = place.raw({ headers: headersOf(keys.w1, 's1') });
  await second.opened;
  second.send({ v: 1, op: 'call', key: 'k1', tool: 't', deadlineMs: 1_000, args: {} });
  await eventually('the call', () => order.includes('call'));
  expect(order).toEqual(['connected', 'disconnected', 'connected', 'call']);
  expect((await first.closed).code).toBe(4003);
  expect(place.transport.connections).toBe(1);
});

test('AC-BR13 edited keys are reported, with the number of connections that they ended', async () => {
  const dataDir = mkdtempSync(path.join(os.tmpdir(), 'hostler-rekey-'));
  const host = await createHost({});
  const events: BrokerEvent[] = [];
  const served = await createBroker({
    ...{ host, dataDir, onEvent: (event) => void events.push(event) },
    config: { broker: { listen: { port: 0 } } },
  });
  await served.rekey({ w1: { hash: `sha256:${digestOf(keys.w1)}`, worker: 'w1' } });
  const open = openWebSocketConnection({ url: served.url ?? '', key: keys.w1, clock: systemClock });
  const connection = await new RecordingWorker().connect(open);
  await served.rekey({});
  expect(events.filter(({ kind }) => kind === 'rekeyed')).toEqual([
    { kind: 'rekeyed', closed: 0 },
    { kind: 'rekeyed', closed: 1 },
  ]);
  await connection.closed;
  await served.close();
  await host.close();
  rmSync(dataDir, { recursive: true, force: true });
});

test('a listener of events that throws or rejects affects no worker', async () => {
  const dataDir = mkdtempSync(path.join(os.tmpdir(), 'hostler-listener-'));
  const host = await createHost({});
  const served = await createBroker({
    ...{ host, dataDir, config: { broker: { listen: { port: 0 } } } },
    onEvent: ({ kind }) => {
      const error = new Error(kind);
      if (kind !== 'connected') throw error;
      return Promise.reject(error);
    },
  });
  await served.rekey({ w1: { hash: `sha256:${digestOf(keys.w1)}`, worker: 'w1' } });
  const connect = (key: string) => openWebSocketConnection({ url: served.url ?? '', key, clock: systemClock });
  await expect(new RecordingWorker().connect(connect(keys.w2))).rejects.toMatchObject({ code: 'unauthenticated' });
  const connection = await new RecordingWorker().connect(connect(keys.w1));
  await served.rekey({});
  await connection.closed;
  await served.close();
  await host.close();
  rmSync(dataDir, { recursive: true, force: true });
});

test('AC-BR13 prepared keys are read at once, reported if they are invalid, and used when they are applied', async () => {
  const dataDir = mkdtempSync(path.join(os.tmpdir(), 'hostler-rekey-'));
  const host = await createHost({});
  const problems: unknown[] = [];
  const served = await createBroker({
    ...{ host, dataDir, onProblem: (problem) => void problems.push(problem) },
    config: { broker: { listen: { port: 0 } } },
  });
  const connect = () =>
    new RecordingWorker().connect(openWebSocketConnection({ url: served.url ?? '', key: keys.w1, clock: systemClock }));
  expect(() => served.prepareKeys([] as never)).toThrow('keys: must be an object');
  const apply = served.prepareKeys({ w1: { hash: `sha256:${digestOf(keys.w1)}`, worker: 'w1' }, w2: { hash: 'no' } });
  expect(problems).toMatchObject([{ code: 'invalid_spec', details: { field: 'keys.w2.hash' } }]);
  await expect(connect()).rejects.toMatchObject({ code: 'unauthenticated' });
  await apply();
  const connection = await connect();
  expect(connection.worker).toBe('w1');
  await connection.close();
  await served.close();
  await host.close();
  rmSync(dataDir, { recursive: true, force: true });
});

test('AC-BR13 a broker that cannot be opened leaves no timer for the expiry of keys', async () => {
  const dataDir = path.join(mkdtempSync(path.join(os.tmpdir(), 'hostler-unopened-')), 'file');
  writeFileSync(dataDir, '');
  const host = await createHost({});
  const clock = new FakeClock();
  const w1 = { hash: `sha256:${'0'.repeat(64)}`, worker: 'w1', role: 'reader', expires: '2027-01-01T00:00:00Z' };
  const opened = createBroker({ host, dataDir, clock, config: { broker: { listen: { port: 0 } }, keys: { w1 } } });
  await expect(opened).rejects.toMatchObject({ details: { reason: 'store_unusable' } });
  expect(clock.pendingTimers).toBe(0);
  await host.close();
  rmSync(path.dirname(dataDir), { recursive: true, force: true });
});
