/** A disk that is full for a while. The long lane broker-disk fills it a hundred times. */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { openSqliteCallLog } from '../../../src/broker/calls/sqlite/sqlite-call-log.js';
import { readReplyBody } from '../../../src/broker/protocol/reply-body.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { done, idOf, newCall, outcome } from '../../contract/broker/call-log-checks.js';
import { eventually } from '../../eventually.js';
import { countFor } from '../../tier.js';
import { fillCycles, usedBytes, withSmallDisk } from './full-disk-cycles.js';
import { makeFolder } from './log-process.js';

const MiB = 1024 * 1024;

test('B6: on a disk that other programs filled, new calls are refused and outcomes wait; with room the log continues', async () => {
  const report = await fillCycles(countFor(3, 6));
  expect(report).toMatchObject({ lost: 0, refusedOtherwise: 0, notServedAgain: 0, hasFailed: false });
  expect(report.refused).toBeGreaterThanOrEqual(3);
}, 90_000);

test('B6: a log that filled the disk itself shrinks and serves again without a restart', async () => {
  await withSmallDisk(64, async (folder) => {
    const log = await openSqliteCallLog({ folder, clock: systemClock });
    const reply = Buffer.alloc(3.9 * MiB, 'x');
    const keys: string[] = [];
    for (let isFull = false; !isFull; ) {
      const key = `k${keys.length}`;
      isFull = await log.receive(newCall(key)).then(
        () => false,
        () => true,
      );
      if (isFull) break;
      keys.push(key);
      await log.finish(idOf(key), log.owner, outcome(reply, { deadlineMs: 500 }));
    }
    expect(keys.length).toBeGreaterThan(5);
    await eventually('new calls are refused', () => log.refusal('w1', false));
    expect(log.refusal('w1', false)).toMatchObject({ code: 'overloaded', details: { reason: 'disk_full' } });
    expect(log.refusal('w1', false)?.details.retryAfterMs).toBeGreaterThan(0);
    for (const key of keys) log.acknowledge(idOf(key));
    await eventually('new calls are accepted', () => log.refusal('w1', false) === undefined);
    await eventually('the folder shrinks', () => usedBytes(folder) < 24 * MiB);
    await done(log, 'again', reply);
    expect(await log.find(idOf('again'))).toMatchObject({ state: 'done' });
    await log.close();
  });
}, 60_000);

test("B6: on a full disk a reply to a caller's key goes to its caller at once, and is not kept", async () => {
  await withSmallDisk(64, async (folder) => {
    const log = await openSqliteCallLog({ folder, clock: systemClock });
    const call = newCall('own', { isCallersKey: true });
    await log.receive(call);
    writeFileSync(path.join(folder, '..', 'others'), Buffer.alloc(50 * MiB, 1));
    const reply = Buffer.alloc(100_000, 'x');
    const row = await log.finish(call.id, log.owner, outcome(reply, { isCallersKey: true, deadlineMs: 2_000 }));
    expect([row?.state, row?.reply?.equals(reply)]).toEqual(['done', true]);
    const kept = await log.find(call.id);
    expect(readReplyBody(kept?.reply as Buffer)).toMatchObject({ error: { details: { reason: 'not_kept' } } });
    await log.close();
  });
}, 60_000);

test('acknowledged replies take no room: many results of 3.9 MB for one worker keep the folder below 256 MiB', async () => {
  const { folder, remove } = makeFolder('ack');
  try {
    const log = await openSqliteCallLog({ folder, clock: systemClock });
    const reply = Buffer.alloc(3.9 * MiB, 'x');
    let [next, most] = [0, 0];
    const count = countFor(60, 500);
    const one = async () => {
      while (next < count) {
        const key = `k${next++}`;
        expect(log.refusal('w1', false)).toBeUndefined();
        await log.receive(newCall(key));
        expect(await log.finish(idOf(key), log.owner, outcome(reply))).toMatchObject({ state: 'done' });
        log.acknowledge(idOf(key));
        most = Math.max(most, usedBytes(folder));
      }
    };
    await Promise.all([one(), one(), one(), one()]);
    console.log(`${count} results of 3.9 MB: at most ${Math.round(most / MiB)} MiB`);
    expect(most).toBeLessThan(256 * MiB);
    await eventually('all are removed', () => log.usage().finished === 0);
    expect(log.usage()).toEqual({ open: 0, finished: 0, replyBytes: 0, callersKeys: 0 });
    await log.close();
  } finally {
    remove();
  }
}, 240_000);

test('the disk of these tests is as small as they need', async () => {
  await withSmallDisk(16, async (folder) => {
    expect(() =>
      execFileSync('dd', ['if=/dev/zero', `of=${folder}/x`, 'bs=1M', 'count=20'], { stdio: 'pipe' }),
    ).toThrow();
  });
});
