/**
 * The contract of every transport of the broker: its host side (WorkerTransport) and its worker side (WorkerConnection) together.
 */
import { afterEach, describe, expect, test, vi } from 'vitest';
import { resultBody } from '../../../src/broker/protocol/reply-body.js';
import { HostError, isHostError } from '../../../src/kernel/errors.js';
import type { RequestConnection } from '../../fakes/request-connection.js';
import {
  RecordingService,
  RecordingWorker,
  request,
  roles,
  type TransportPlace,
  transportKinds,
} from './transports.js';

const result = (text: string): Buffer =>
  resultBody(Buffer.from(`{"content":[{"type":"text","text":"${text}"}]}`), 'legacy');

const arrives = (check: () => void) => vi.waitFor(check, { timeout: 10_000, interval: 2 });

describe.each(transportKinds.map((kind) => [kind.name, kind] as const))('%s', (_name, kind) => {
  let place: TransportPlace | undefined;
  const opened: RequestConnection[] = [];

  const start = async (): Promise<{ service: RecordingService; place: TransportPlace }> => {
    const fresh = new RecordingService();
    place = await kind.open(fresh);
    return { service: fresh, place };
  };
  const connect = async (worker: RecordingWorker, name: 'w1' | 'w2' = 'w1'): Promise<RequestConnection> => {
    const connection = await worker.connect((place as TransportPlace).opener(name));
    opened.push(connection);
    return connection;
  };
  afterEach(async () => {
    for (const connection of opened.splice(0)) await connection.close();
    await place?.close();
    place = undefined;
  });

  test('AC-BR1: a request and its reply arrive byte for byte', async () => {
    const { service: host } = await start();
    const worker = new RecordingWorker();
    const connection = await connect(worker);
    const args = Buffer.from('{"mark":7,"text":"Grüße \\u0000","big":12345678901234567890}');
    const sent = request('k1', {
      ...{ args, isCallersKey: true, wantsProgress: true, manifestRevision: 'r7', deadlineMs: 1_234 },
      sentBefore: { storeId: 'older', hasReceipt: true },
      trace: { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`, tracestate: 'x=1' },
    });
    await expect(connection.call(sent)).resolves.toEqual({ owner: 'owner-1', storeId: place?.storeId });
    const [incoming] = host.calls;
    const { op: _op, ...received } = { op: 'call', ...incoming?.request };
    expect({ ...received, args: incoming?.request.args.toString() }).toEqual({ ...sent, args: args.toString() });
    const body = result('done');
    expect(incoming?.session.send({ op: 'reply', key: 'k1', body })).toBe(true);
    await arrives(() => expect(worker.replies).toEqual([{ key: 'k1', body: body.toString() }]));
    connection.acknowledge(['k1', 'k2']);
    await arrives(() => expect(host.ackedKeys).toEqual(['k1', 'k2']));
  });

  test('AC-BR1: a request and a reply of the largest size arrive whole', async () => {
    const { service: host } = await start();
    const worker = new RecordingWorker();
    const connection = await connect(worker);
    const large = 'x'.repeat(3_900_000);
    await connection.call(request('k1', { args: Buffer.from(`{"text":"${large}"}`) }));
    expect(host.calls[0]?.request.args.length).toBe(large.length + '{"text":""}'.length);
    host.calls[0]?.session.send({ op: 'reply', key: 'k1', body: result(large) });
    await arrives(() => expect(worker.replies[0]?.body.length).toBe(result(large).length));
  });

  test('AC-BR2: a worker asks for the reply that it missed, and gets it', async () => {
    const { service: host, place: at } = await start();
    const worker = new RecordingWorker('session-1');
    const first = await connect(worker);
    await first.call(request('k1'));
    await first.close();
    await arrives(() => expect(at.transport.connectedWorkers).toBe(0));
    host.onAsk = async (session) => {
      session.send({ op: 'reply', key: 'k1', body: result('late') });
      return { running: ['k2'], resend: ['k3'] };
    };
    const second = await connect(worker);
    await expect(second.ask(['k1', 'k2', 'k3'])).resolves.toEqual({ running: ['k2'], resend: ['k3'] });
    expect(host.asks).toEqual([['k1', 'k2', 'k3']]);
    await arrives(() => expect(worker.replies).toEqual([{ key: 'k1', body: result('late').toString() }]));
    expect(at.transport.connectedWorkers).toBe(1);
  });

  test('AC-BR3: an unknown key is refused as unauthenticated', async () => {
    const { service: host, place: at } = await start();
    const error = await new RecordingWorker().connect(at.opener('nobody')).catch((caught) => caught);
    expect(error).toMatchObject({ code: 'unauthenticated', details: { execution: 'not_executed' } });
    expect(host.joinedSessions).toEqual([]);
  });

  test('AC-BR8: a cancel reaches the host with the session that sent it', async () => {
    const { service: host } = await start();
    const worker = new RecordingWorker('session-1');
    const connection = await connect(worker);
    await connection.call(request('k1'));
    connection.cancel('k1');
    await arrives(() => expect(host.cancels).toHaveLength(1));
    expect(host.cancels[0]).toMatchObject({ key: 'k1', session: { id: 'session-1', name: 'w1' } });
  });

  test('AC-BR9: a call without a receipt is rejected, as uncertain, when the connection ends', async () => {
    const { service: host } = await start();
    host.onCall = () => {};
    const connection = await connect(new RecordingWorker());
    const call = connection.call(request('k1')).catch((error) => error);
    await arrives(() => expect(host.calls).toHaveLength(1));
    await connection.close();
    const error = await call;
    expect(isHostError(error) && error.code).toBe('transport');
    expect(error.details.execution).not.toBe('not_executed');
  });

  test('AC-BR10: receipts and replies that come out of order reach the right call', async () => {
    const { service: host } = await start();
    host.onCall = () => {};
    const worker = new RecordingWorker();
    const connection = await connect(worker);
    const keys = ['k1', 'k2', 'k3', 'k4'];
    const calls = keys.map((key) => connection.call(request(key)));
    await arrives(() => expect(host.calls).toHaveLength(4));
    for (const incoming of [...host.calls].reverse()) incoming.receipt(`owner-of-${incoming.request.key}`);
    const owners = (await Promise.all(calls)).map(({ owner }) => owner);
    expect(owners).toEqual(keys.map((key) => `owner-of-${key}`));
    for (const incoming of [...host.calls].reverse())
      incoming.session.send({ op: 'reply', key: incoming.request.key, body: result(incoming.request.key) });
    await arrives(() => expect(worker.replies).toHaveLength(4));
    for (const { key, body } of worker.replies) expect(body).toBe(result(key).toString());
  });

  test('a refusal rejects the call with the error of the host', async () => {
    const { service: host } = await start();
    const refusal = new HostError('denied', 'tool nova_click is not allowed', { tool: 'nova_click', retryAfterMs: 40 });
    host.onCall = (incoming) => incoming.refuse(refusal);
    const connection = await connect(new RecordingWorker());
    await expect(connection.call(request('k1'))).rejects.toMatchObject({
      ...{ code: 'denied', message: 'tool nova_click is not allowed' },
      details: { tool: 'nova_click', retryAfterMs: 40 },
    });
  });

  test('AC-BR12: name, role and epoch come from the key; a worker with the session id of another worker gets nothing of that worker', async () => {
    const { service: host } = await start();
    const mine = new RecordingWorker('session-1');
    const other = new RecordingWorker('session-1');
    const first = await connect(mine, 'w1');
    const second = await connect(other, 'w2');
    expect([first.worker, second.worker]).toEqual(['w1', 'w2']);
    await first.call(request('k1'));
    await second.call(request('k1'));
    const [ofMine, ofOther] = host.calls.map(({ session }) => session);
    expect(ofMine?.identity()).toEqual({ name: 'w1', epoch: 'w1-epoch', role: roles.w1 });
    expect(ofOther?.identity()).toEqual({ name: 'w2', epoch: 'w2-epoch', role: roles.w2 });
    ofOther?.send({ op: 'reply', key: 'k1', body: result('of w2') });
    await arrives(() => expect(other.replies).toHaveLength(1));
    expect(mine.replies).toEqual([]);
  });

  test('AC-BR13: a revoked worker has no identity any more, and is refused', async () => {
    const { service: host, place: at } = await start();
    const connection = await connect(new RecordingWorker());
    await connection.call(request('k1'));
    await at.revoke();
    expect(host.calls[0]?.session.identity()).toBeUndefined();
    const error = await new RecordingWorker().connect(at.opener('w1')).catch((caught) => caught);
    expect(error).toMatchObject({ code: 'unauthenticated' });
  });

  test('AC-BR14: a new connection of a session takes the place of the old one, and keeps it when the old one ends', async () => {
    const { service: host, place: at } = await start();
    const worker = new RecordingWorker('session-1');
    const first = await connect(worker);
    await first.call(request('k1'));
    const second = await connect(worker);
    await first.close();
    expect(host.calls[0]?.session.send({ op: 'reply', key: 'k1', body: result('here') })).toBe(true);
    await arrives(() => expect(worker.replies).toHaveLength(1));
    expect(at.transport.connectedWorkers).toBe(1);
    await expect(second.call(request('k2'))).resolves.toMatchObject({ owner: 'owner-1' });
  });

  test('AC-BR14: each connection of a session is reported once, and its end before the next one', async () => {
    const { service: host } = await start();
    const order: string[] = [];
    host.onConnected = ({ name, id }) => void order.push(`${name} ${id} is there`);
    host.onLeft = ({ name, id }) => void order.push(`${name} ${id} left`);
    const worker = new RecordingWorker('session-1');
    const first = await connect(worker);
    await first.call(request('k1'));
    const second = await connect(worker);
    await first.close();
    await second.call(request('k2'));
    const [there, left] = ['w1 session-1 is there', 'w1 session-1 left'];
    await arrives(() => expect(order).toEqual([there, left, there]));
    await second.close();
    await arrives(() => expect(order).toEqual([there, left, there, left]));
  });

  test('AC-BR14: two processes with one key are two sessions, each with its own replies', async () => {
    const { service: host } = await start();
    const [one, two] = [new RecordingWorker('session-1'), new RecordingWorker('session-2')];
    const [first, second] = [await connect(one), await connect(two)];
    await first.call(request('k1'));
    await second.call(request('k2'));
    for (const { session, request: call } of host.calls)
      session.send({ op: 'reply', key: call.key, body: result(call.key) });
    await arrives(() => expect([one.replies.length, two.replies.length]).toEqual([1, 1]));
    expect([one.replies[0]?.key, two.replies[0]?.key]).toEqual(['k1', 'k2']);
  });

  test('the store id and the receipt of an earlier sending are sent with the call, so that it never runs twice', async () => {
    const { service: host, place: at } = await start();
    const connection = await connect(new RecordingWorker());
    expect(connection.storeId).toBe(at.storeId);
    await connection.call(request('k1'));
    await connection.call(request('k2', { sentBefore: { storeId: 'store-0', hasReceipt: false } }));
    await connection.call(request('k3', { sentBefore: { storeId: 'store-0', hasReceipt: true } }));
    expect(host.calls.map(({ request: { sentBefore } }) => sentBefore)).toEqual([
      undefined,
      { storeId: 'store-0', hasReceipt: false },
      { storeId: 'store-0', hasReceipt: true },
    ]);
  });

  test('progress, the manifest and its changes reach the worker', async () => {
    const { service: host, place: at } = await start();
    const worker = new RecordingWorker();
    const connection = await connect(worker);
    await connection.call(request('k1', { wantsProgress: true }));
    await expect(connection.manifest()).resolves.toEqual(host.manifestBody);
    host.calls[0]?.session.send({ op: 'progress', key: 'k1', params: Buffer.from('{"progress":0.5}') });
    await arrives(() => expect(worker.progressed).toEqual([{ key: 'k1', params: '{"progress":0.5}' }]));
    at.transport.notify(({ name }) => name === 'w1', { op: 'manifest_changed', revision: 'r2' });
    await arrives(() => expect(worker.revisions).toEqual(['r2']));
  });

  test('a host that stops answers every call that it read, and serves no others', async () => {
    const { service: host, place: at } = await start();
    host.onCall = () => {};
    const connection = await connect(new RecordingWorker());
    const read = connection.call(request('k1'));
    await arrives(() => expect(host.calls).toHaveLength(1));
    const stopped = at.transport.stop();
    const late = connection.call(request('k2')).catch((error) => error);
    if (kind.knowsUnread) expect(await late).toMatchObject({ details: { execution: 'not_executed' } });
    host.calls[0]?.receipt('owner-1');
    await expect(read).resolves.toMatchObject({ owner: 'owner-1' });
    await stopped;
    expect(await late).toMatchObject({ code: 'transport' });
    expect(host.calls).toHaveLength(1);
  });
});
