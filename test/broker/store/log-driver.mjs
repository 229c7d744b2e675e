/**
 * A process with a log of calls. It prints a line for each promise of the log before it continues. So a test that kills the
 * process, or makes its disk fail, knows which rows must exist afterwards.
 * Usage: node log-driver.mjs <folder> work [inFlight] [count] [bytes] | call [keys] [atMs] | read <file of keys> | hang | hold
 * Lines: `opened`, `R key` received, `F key` finished, `t key` will be acknowledged, `X code reason execution` a refusal, `P reason` a problem,
 * `M key state` a row, `N key` no row, `C key state` a key that was there, `E key` is run, `closed`.
 */
import { readFileSync, writeSync } from 'node:fs';
import process from 'node:process';
import { openSqliteCallLog } from '../../../dist/broker/calls/sqlite/sqlite-call-log.js';
import { systemClock } from '../../../dist/kernel/clock.js';

const [folder, what, ...rest] = process.argv.slice(2);
const [first = 8, second = 1_000_000, bytes = 200] = rest.map(Number);
/** For `call`: a wall clock with the time that the test gives. */
const clock = what === 'call' && rest.length > 1 ? { ...systemClock, date: () => new Date(second) } : systemClock;

/** Synchronous: the line is written when this returns. It waits for a full pipe, so that nothing else happens meanwhile. */
const say = (...words) => {
  const line = Buffer.from(`${words.join(' ')}\n`);
  for (let at = 0; at < line.length; ) {
    try {
      at += writeSync(1, line, at);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
};
const refused = ({ code, details = {} }) => say('X', code, details.reason, details.execution);
const open = () => openSqliteCallLog({ folder, clock, onProblem: ({ details }) => say('P', details.reason) });
const log = await open().catch((error) => {
  refused(error);
  process.exit(3);
});
say('opened');

const idOf = (key) => ({ worker: `w${key.length % 4}`, epoch: 'e1', key });
const replyOf = (key) => Buffer.alloc(bytes, `reply-of-${key} `);
const receive = (key, more) =>
  log.receive({
    id: idOf(key),
    digest: 'd',
    isCallersKey: false,
    deadlineMs: 60_000,
    state: 'running',
    ...more,
  });
const finish = (key, isCallersKey = false) =>
  log.finish(idOf(key), log.owner, { state: 'done', reply: replyOf(key), isCallersKey, deadlineMs: 2_000 });

if (what === 'work') await work();
else if (what === 'call') await call();
else if (what === 'read') await read();
else if (what === 'hang') await hang();
else await new Promise((resolve) => process.stdin.once('end', resolve).resume());
await log.close();
say('closed');

async function work() {
  const run = `${process.pid}-${Date.now().toString(36)}`;
  let [next, hasFailed] = [0, false];
  const one = async () => {
    while (next < second && !hasFailed) {
      const key = `${run}-${next++}`;
      try {
        await receive(key);
        say('R', key);
        await finish(key);
        say('F', key);
        if (next % 3 > 0) continue;
        say('t', key);
        log.acknowledge(idOf(key));
      } catch (error) {
        refused(error);
        hasFailed ||= error.details?.reason === 'store_failed';
      }
    }
  };
  await Promise.all(Array.from({ length: first }, one));
  if (!hasFailed) return;
  // After a failure the log must not promise anything.
  await receive('late').then(() => say('R', 'late'), refused);
  await log.close();
  await open().then(() => say('opened'), refused);
}

/** Runs each key once if the log allows it, in random order. */
async function call() {
  const order = Array.from({ length: first }, (_, at) => `k${at}`).sort(() => Math.random() - 0.5);
  const one = async () => {
    for (let key = order.pop(); key !== undefined; key = order.pop()) {
      const { isNew, row } = await receive(key, { isCallersKey: true });
      if (!isNew) {
        say('C', key, row.state, row.reply === undefined || row.reply.equals(replyOf(key)) ? 'own' : 'foreign');
        continue;
      }
      say('E', key);
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 5));
      await finish(key, true);
      say('F', key);
    }
  };
  await Promise.all([one(), one(), one(), one()]);
}

/** Closes while the first call waits for a disk that hangs. */
async function hang() {
  const received = receive('k1').then(() => say('R', 'k1'), refused);
  await log.close();
  await received;
}

async function read() {
  for (const key of readFileSync(rest[0], 'utf8').split('\n').filter(Boolean)) {
    const row = await log.find(idOf(key));
    if (row === undefined) say('N', key);
    else say('M', key, row.reply && !row.reply.toString().startsWith(`reply-of-${key} `) ? 'foreign' : row.state);
  }
}
