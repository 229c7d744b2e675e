import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { keysBucket, streamOf } from './names.js';
import type { HostParts } from './nats-client.js';
import { StoreId } from './store-id.js';
import type { Streams } from './streams.js';

/** One row, as the bucket has it. */
function rig() {
  const clock = new FakeClock();
  const problems: unknown[] = [];
  const store = { value: undefined as string | undefined, seq: 0, isCut: false };
  const unlessCut = () => {
    if (store.isCut) throw new Error('TIMEOUT');
  };
  const infos: Record<string, unknown> = {
    [streamOf(keysBucket)]: { created: '2026-11-18T10:00:00.1Z', state: { last_seq: 0 } },
  };
  const streams = {
    async last() {
      unlessCut();
      return store.value === undefined ? undefined : { value: Buffer.from(store.value), seq: store.seq };
    },
    async put(_subject: string, value: Uint8Array) {
      unlessCut();
      store.value = Buffer.from(value).toString();
      return ++store.seq;
    },
    info: async (stream: string) => infos[stream] ?? { state: { last_seq: store.seq } },
    fail: () => {},
  };
  const connection = { isClosed: () => false, subscribe() {}, publish() {}, async *status() {} };
  const options = { clock, connection, onProblem: (error: unknown) => problems.push(error) };
  const open = () => StoreId.open(options as unknown as HostParts, streams as unknown as Streams);
  return { clock, problems, store, streams, open };
}

test('the row of the id is written again every 3 min; a lost connection at that time is not reported as another problem', async () => {
  const { clock, problems, store, open } = rig();
  const { id } = await open();
  expect([id, store.seq]).toEqual([store.value?.split('.')[0], 1]);
  await clock.advanceAsync(3 * 60_000);
  expect(store.seq).toBe(2);
  store.isCut = true;
  await clock.advanceAsync(3 * 60_000);
  store.isCut = false;
  await clock.advanceAsync(3 * 60_000);
  expect([store.seq, problems]).toEqual([3, []]);
});

test('a bucket that is deleted is noticed when the id is written again', async () => {
  const { clock, store, streams, open } = rig();
  const opened = await open();
  const { id } = opened;
  const { last } = streams;
  streams.last = async () => {
    streams.last = last;
    Object.assign(store, { value: undefined, seq: 0 });
    throw Object.assign(new Error('no stream'), { code: 10059 });
  };
  await clock.advanceAsync(3 * 60_000);
  await opened.checking;
  expect([opened.id === id, store.value?.split('.')[0]]).toEqual([false, opened.id]);
});
