import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { callsBucket, keysBucket } from './names.js';
import { StoreId, type StoreIdOptions } from './store-id.js';

/** One row, as the bucket has it. */
function rig() {
  const clock = new FakeClock();
  const problems: unknown[] = [];
  const store = { value: undefined as string | undefined, seq: 0, isCut: false };
  const unlessCut = () => {
    if (store.isCut) throw new Error('TIMEOUT');
  };
  const row = {
    async read() {
      unlessCut();
      return store.value === undefined ? undefined : { value: Buffer.from(store.value), seq: store.seq };
    },
    async write(value: string) {
      unlessCut();
      store.value = value;
      return ++store.seq;
    },
  };
  const infos = () => ({
    [callsBucket]: { state: { last_seq: store.seq } },
    [keysBucket]: { created: '2026-11-18T10:00:00.1Z', state: { last_seq: 0 } },
  });
  const connection = { isClosed: () => false, async *status() {} };
  const options = {
    ...{ clock, row, connection, info: async (bucket: keyof ReturnType<typeof infos>) => infos()[bucket] },
    ...{ onProblem: (error: unknown) => problems.push(error), onNewStore: () => {}, onLoss: () => {} },
  } as unknown as StoreIdOptions;
  return { clock, problems, store, options };
}

test('the row of the id is written again every 3 min; a lost connection at that time is not reported as another problem', async () => {
  const { clock, problems, store, options } = rig();
  const { id } = await StoreId.open(options);
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
  const { clock, store, options } = rig();
  const opened = await StoreId.open(options);
  const { id } = opened;
  const { read } = options.row;
  options.row.read = async () => {
    options.row.read = read;
    Object.assign(store, { value: undefined, seq: 0 });
    throw Object.assign(new Error('no stream'), { code: 10059 });
  };
  await clock.advanceAsync(3 * 60_000);
  await opened.checking;
  expect([opened.id === id, store.value?.split('.')[0]]).toEqual([false, opened.id]);
});
