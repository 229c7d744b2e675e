import { beforeEach, describe, expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import type { WorkerMessage } from '../protocol/messages.js';
import { ManifestLearner } from './manifest-learner.js';

let clock: FakeClock;
let asked: { resolve: (body: Buffer) => void; reject: (error: Error) => void }[];
let learned: string[];
let failed: unknown[];
let learner: ManifestLearner;

const manifest = (revision: string): Buffer => Buffer.from(`{"revision":"${revision}","tools":[]}`);
const settle = () => clock.advanceAsync(0);

beforeEach(() => {
  clock = new FakeClock();
  [asked, learned, failed] = [[], [], []];
  learner = new ManifestLearner({
    ...{ clock, random: () => 0 },
    connection: {
      answerMs: 10_000,
      send(message) {
        const { id } = message as Extract<WorkerMessage, { op: 'manifest' }>;
        asked.push({ resolve: (body) => learner.heard(id, body), reject: (error) => learner.fail(error) });
        return true;
      },
    },
    learned: ({ revision }) => void learned.push(revision),
    failed: (error) => void failed.push(error),
  });
});

describe('a manifest that is wanted', () => {
  test('is asked for once, and a second time if it was wanted again meanwhile', async () => {
    for (let n = 0; n < 5; n++) learner.want();
    expect(asked).toHaveLength(1);
    asked[0]?.resolve(manifest('a'));
    await settle();
    expect([learned, asked.length]).toEqual([['a'], 1]);
    await clock.advanceAsync(250);
    expect(asked).toHaveLength(2);
    asked[1]?.resolve(manifest('b'));
    await clock.advanceAsync(10_000);
    expect([learned, asked.length, clock.pendingTimers]).toEqual([['a', 'b'], 2, 0]);
  });

  test('is asked for until it comes, with backoff', async () => {
    learner.want();
    for (const waitMs of [200, 400, 800, 1_600, 2_000, 2_000]) {
      const before = asked.length;
      asked.at(-1)?.reject(new Error('no'));
      await clock.advanceAsync(waitMs - 1);
      expect(asked).toHaveLength(before);
      await clock.advanceAsync(1);
      expect(asked).toHaveLength(before + 1);
    }
    expect(failed).toHaveLength(6);
    asked.at(-1)?.resolve(manifest('a'));
    await settle();
    expect(learned).toEqual(['a']);
  });

  test('is asked for again if no answer comes within 10 s', async () => {
    learner.want();
    await clock.advanceAsync(10_000);
    expect(failed).toMatchObject([{ code: 'transport', details: { reason: 'no_answer' } }]);
    await clock.advanceAsync(200);
    asked[0]?.resolve(manifest('late'));
    asked[1]?.resolve(manifest('b'));
    expect([learned, asked.length]).toEqual([['b'], 2]);
  });

  test('is not asked for after the end, and a late answer is ignored', async () => {
    learner.want();
    learner.end();
    asked[0]?.resolve(manifest('late'));
    await clock.advanceAsync(10_000);
    expect([learned, asked.length]).toEqual([[], 1]);
  });
});

describe('`look`, for a call of an unknown tool', () => {
  test('shares the question in flight', async () => {
    learner.want();
    let looks = 0;
    for (let n = 0; n < 3; n++) void learner.look().then(() => looks++);
    asked[0]?.resolve(manifest('a'));
    await settle();
    expect([looks, asked.length]).toEqual([3, 1]);
  });

  test('asks nothing within 5 s of the last answer or error', async () => {
    void learner.look();
    asked[0]?.reject(new Error('no'));
    await settle();
    await learner.look();
    await clock.advanceAsync(4_999);
    await learner.look();
    expect(asked).toHaveLength(1);
    await clock.advanceAsync(1);
    void learner.look();
    expect([asked.length, failed.length]).toEqual([2, 1]);
  });

  test('that fails is not repeated', async () => {
    void learner.look();
    asked[0]?.reject(new Error('no'));
    await clock.advanceAsync(60_000);
    expect([asked.length, clock.pendingTimers]).toEqual([1, 0]);
  });
});
