/** The engine that tests of workers and hosts are run on keeps what broker/ports.ts says of engines. */
import { beforeEach, describe, expect, test } from 'vitest';
import type { Delivery, HostHandlers, HostLink, WorkerHandlers, WorkerLink } from '../../../src/broker/ports.js';
import { Cancellation } from '../../../src/kernel/cancel-signal.js';
import { HostError } from '../../../src/kernel/errors.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { MemoryBroker } from '../../fakes/memory-broker.js';

const clock = new FakeClock();
let broker: MemoryBroker;
let deliveries: Delivery[];
let replies: string[];
let told: string[];
let cancelled: string[];

const hostHandlers: HostHandlers = {
  deliver: (delivery) => void deliveries.push(delivery),
  cancelled: (from, id) => void cancelled.push(`${from.mailbox}/${id}`),
};
const workerHandlers: WorkerHandlers = {
  replied: (id, body) => void replies.push(`${id}=${body}`),
  told: (body) => void told.push(`${body}`),
};

const openHost = (): Promise<HostLink> => broker.openHost(hostHandlers, new Cancellation());
const openWorker = (mailbox = 'w1'): Promise<WorkerLink> =>
  broker.openWorker({ mailbox, role: 'reader' })(workerHandlers, new Cancellation());
const request = (id: string) => ({ id, body: Buffer.from(`"${id}"`), ttlMs: 1_000 });
const last = (): Delivery => deliveries.at(-1) as Delivery;

beforeEach(() => {
  broker = new MemoryBroker(clock);
  [deliveries, replies, told, cancelled] = [[], [], [], []];
});

describe('what is asked', () => {
  test('waits for a host, is handed out with its sender, and is over when acked', async () => {
    const worker = await openWorker();
    await worker.send(request('a'));
    expect(deliveries).toEqual([]);
    await openHost();
    await clock.advanceAsync(0);
    expect(last()).toMatchObject({ id: 'a', deliveries: 1, from: { mailbox: 'w1', role: 'reader' } });
    expect(last().deadlineAt).toEqual(new Date(clock.date().getTime() + 1_000));
    await last().reply('1');
    last().ack();
    await clock.advanceAsync(0);
    expect([broker.owed, broker.heldReplies, replies]).toEqual([0, 0, ['a=1']]);
  });

  test('comes again to the next host, counted, and the hands it was in before do nothing more', async () => {
    const worker = await openWorker();
    const first = await openHost();
    await worker.send(request('a'));
    await worker.send(request('a'));
    await clock.advanceAsync(0);
    const before = last();
    broker.cut('host');
    await expect(first.closed).resolves.toMatchObject({ code: 'transport' });
    await openHost();
    await clock.advanceAsync(0);
    expect(deliveries.map(({ deliveries: count }) => count)).toEqual([1, 2]);
    before.ack();
    await expect(before.reply('1')).rejects.toMatchObject({ code: 'transport' });
    expect(broker.owed).toBe(1);
  });

  test('is handed out within the window, in order', async () => {
    broker = new MemoryBroker(clock, { window: 2 });
    const worker = await openWorker();
    await openHost();
    for (const id of ['a', 'b', 'c']) await worker.send(request(id));
    await clock.advanceAsync(0);
    expect(deliveries.map(({ id }) => id)).toEqual(['a', 'b']);
    deliveries[0]?.ack();
    await clock.advanceAsync(0);
    expect(last().id).toBe('c');
  });

  test('comes back after a rest when it was released, and ends as a dead letter', async () => {
    broker = new MemoryBroker(clock, { deliveriesMax: 2 });
    const worker = await openWorker();
    await openHost();
    await worker.send(request('a'));
    await clock.advanceAsync(0);
    last().release(500, 'busy');
    await clock.advanceAsync(499);
    expect(deliveries).toHaveLength(1);
    await clock.advanceAsync(1);
    last().release(500, 'still busy');
    expect(broker.deadLetters).toEqual([{ from: 'w1', id: 'a', reasons: ['busy', 'still busy'] }]);
  });

  test('reaches only the worker that asked, and waits for one that is away', async () => {
    const worker = await openWorker();
    await openWorker('w2');
    await openHost();
    await worker.send(request('a'));
    await clock.advanceAsync(0);
    broker.cut('w1');
    await last().reply('1');
    await clock.advanceAsync(0);
    expect([replies, broker.heldReplies]).toEqual([[], 1]);
    await openWorker();
    await clock.advanceAsync(0);
    expect([replies, broker.heldReplies]).toEqual([['a=1'], 0]);
  });
});

describe('what goes wrong when asked for', () => {
  test('a refused send is held only when that is said', async () => {
    const worker = await openWorker();
    const full = new HostError('overloaded', 'full', { execution: 'not_executed' });
    broker.refuseNextSend(full);
    await expect(worker.send(request('a'))).rejects.toBe(full);
    expect(broker.owed).toBe(0);
    broker.refuseNextSend(new HostError('timeout', 'no receipt', { execution: 'uncertain' }), true);
    await expect(worker.send(request('a'))).rejects.toMatchObject({ code: 'timeout' });
    expect([broker.owed, broker.sends.length]).toEqual([1, 2]);
  });

  test('a receipt that is held back is lost with the link; the request is not', async () => {
    const worker = await openWorker();
    broker.holdsReceipts = true;
    const sent = worker.send(request('a'));
    broker.cut('w1');
    await expect(sent).rejects.toMatchObject({ code: 'transport', details: { execution: 'uncertain' } });
    await expect(worker.send(request('b'))).rejects.toMatchObject({ details: { execution: 'not_executed' } });
    expect(broker.owed).toBe(1);
  });

  test('a dropped reply comes when its worker comes back', async () => {
    const worker = await openWorker();
    await openHost();
    await worker.send(request('a'));
    await clock.advanceAsync(0);
    broker.dropReplies();
    await last().reply('1');
    await clock.advanceAsync(0);
    expect(replies).toEqual([]);
    broker.cut('w1');
    await openWorker();
    await clock.advanceAsync(0);
    expect(replies).toEqual(['a=1']);
  });

  test('a black hole swallows everything until it is noticed', async () => {
    const worker = await openWorker();
    const host = await openHost();
    broker.blackHole('w1');
    const sent = worker.send(request('a')).catch((error: HostError) => error.code);
    host.tellAll('1');
    await clock.advanceAsync(29_999);
    expect([broker.owed, told, broker.connectedWorkers]).toEqual([0, [], ['w1']]);
    await clock.advanceAsync(1);
    await expect(sent).resolves.toBe('transport');
    await expect(worker.closed).resolves.toMatchObject({ code: 'transport' });
  });

  test('news and cancels reach who is there, and only them', async () => {
    const worker = await openWorker();
    const host = await openHost();
    host.tell('w1', '{"a":', '1}');
    host.tell('w2', '2');
    worker.cancel('a');
    await clock.advanceAsync(0);
    expect([told, cancelled]).toEqual([['{"a":1}'], ['w1/a']]);
  });
});
