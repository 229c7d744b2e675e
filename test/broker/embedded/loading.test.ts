/** A mailbox is read from its disk while mail comes and subscribers go: nothing is left out, and nothing comes twice. */
import { expect, test } from 'vitest';
import type { Mail, NewMail, Put } from '../../../src/broker/store-port.js';
import { MemoryMailStore } from '../../fakes/memory-mail-store.js';
import { coreBench, type Frame } from './core-bench.js';

/** What it read or put is there, but whoever asked hears of it when it is let. */
class GatedStore extends MemoryMailStore {
  isGated = false;
  putsUnderWay = 0;
  putsMax = 0;
  readonly #reads: (() => void)[] = [];
  readonly #puts: (() => void)[] = [];

  override async read(...asked: Parameters<MemoryMailStore['read']>): Promise<readonly Mail[]> {
    const page = await super.read(...asked);
    if (this.isGated) await new Promise<void>((resolve) => this.#reads.push(resolve));
    return page;
  }

  override async put(mail: NewMail): Promise<Put> {
    this.putsMax = Math.max(this.putsMax, ++this.putsUnderWay);
    const put = await super.put(mail);
    if (this.isGated) await new Promise<void>((resolve) => this.#puts.push(resolve));
    this.putsUnderWay--;
    return put;
  }

  letRead(): void {
    this.#reads.shift()?.();
  }
  letPut(): void {
    this.#puts.shift()?.();
  }
}

const idsOf = (frames: readonly Frame[]) => frames.map(({ id }) => id);
const page = { count: 2, bytes: 1_000_000 };

test('mail that comes while the end of the disk is read is not left out', async () => {
  const store = new GatedStore();
  const { client, settle } = await coreBench({ page }, undefined, store);
  const alice = client().hello('alice').request('m1');
  await settle();
  store.isGated = true;
  const host = client().subscribed('host');
  await settle();
  store.letRead();
  await settle();
  // The next reading found nothing more; then this comes.
  alice.request('m2');
  await settle();
  store.letPut();
  await settle();
  store.isGated = false;
  store.letRead();
  await settle();
  expect(idsOf(host.of('message'))).toEqual(['m1', 'm2']);
});

test('mail that was read before its receipt is handed out once', async () => {
  const store = new GatedStore();
  const { client, settle, core } = await coreBench({ page }, undefined, store);
  const alice = client().hello('alice').request('m1');
  await settle();
  store.isGated = true;
  alice.request('m2');
  await settle();
  const host = client().subscribed('host');
  for (let n = 0; n < 3; n++) {
    await settle();
    store.letRead();
  }
  await settle();
  expect(idsOf(host.of('message'))).toEqual(['m1', 'm2']);
  for (const message of host.of('message')) host.ack(message);
  store.isGated = false;
  store.letPut();
  await settle();
  expect(idsOf(host.of('message'))).toEqual(['m1', 'm2']);
  expect(alice.of('delivered')).toHaveLength(2);
  expect(core.status().mailboxes).toMatchObject([{ mailbox: 'host', count: 0, held: 0 }]);
});

test('a reading that was given up begins again for the next subscriber', async () => {
  const store = new GatedStore();
  const { client, settle } = await coreBench({ page, hostWindow: 1 }, undefined, store);
  client().hello('alice').request('m1').request('m2').request('m3');
  await settle();
  store.isGated = true;
  const brief = client().subscribed('host');
  await settle();
  store.letRead();
  await settle();
  expect(idsOf(brief.of('message'))).toEqual(['m1']);
  // Its second page is under way when it goes, and what waited is forgotten.
  brief.reader.ended('closed with 1006');
  const host = client().subscribed('host');
  store.isGated = false;
  store.letRead();
  for (let n = 0; n < 3; n++) {
    await settle();
    host.ack(host.of('message')[n] as Frame);
  }
  await settle();
  expect(idsOf(host.of('message'))).toEqual(['m1', 'm2', 'm3']);
});

test('B9 of one connection no more is under way to the disk than may be, and nothing is lost', async () => {
  const store = new GatedStore();
  const { client, settle } = await coreBench({ arriving: 5, rate: undefined }, undefined, store);
  store.isGated = true;
  const alice = client().hello('alice');
  for (let n = 0; n < 50; n++) alice.request(`m${n}`);
  await settle();
  expect(store.putsUnderWay).toBe(5);
  expect(alice.wire.isPaused).toBe(true);
  while (alice.of('delivered').length < 50) {
    store.letPut();
    await settle();
  }
  expect(store.putsMax).toBe(5);
  expect(idsOf(alice.of('delivered'))).toEqual(Array.from({ length: 50 }, (_, n) => `m${n}`));
  expect(alice.wire.isPaused).toBe(false);
});

test('B7 a request that is sent again waits for its mailbox to be read: answered meanwhile, it is not taken as a new one', async () => {
  const store = new MemoryMailStore();
  const limits = { mailboxMessages: 10 };
  const earlier = await coreBench(limits, undefined, store);
  const worker = earlier.client().hello('bob');
  for (let n = 0; n < 9; n++) worker.request(`m${n}`);
  earlier.client().hello('host').say({ kind: 'deliver', id: 'k', type: 'reply', to: 'alice', body: {} });
  await earlier.settle();
  const { client, settle } = await coreBench(limits, undefined, store);
  const reads: (() => void)[] = [];
  const read = store.read.bind(store);
  store.read = async (mailbox, ...asked) => {
    if (mailbox === 'host') await new Promise<void>((resolve) => reads.push(resolve));
    return read(mailbox, ...asked);
  };
  const alice = client().subscribed('alice').request('k').request('other');
  await settle();
  const [reply] = alice.of('message');
  alice.ack(reply as Frame);
  await settle();
  expect([reads.length, alice.of('delivered')]).toEqual([1, []]);
  for (let n = 0; n < 3; n++) {
    for (const go of reads.splice(0)) go();
    await settle();
  }
  expect(idsOf(alice.of('delivered'))).toEqual(['k', 'other']);
  const held = (await read('host', 0, { count: 100, bytes: 1e9 })).map(({ id }) => id);
  expect([held.includes('k'), held.includes('other'), held.length]).toEqual([false, true, 10]);
});
