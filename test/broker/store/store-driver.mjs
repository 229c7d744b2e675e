/**
 * A process that has a store and says what it was promised, line by line, before anything else happens: whoever kills it, or
 * lets its disk fail, knows what must be there afterwards.
 * Usage: node store-driver.mjs <folder> put|work [inFlight] [count] [bytes] | read | hold | turns | call [keys] [at] [base]
 * Lines: `opened`, `R seq id` a receipt, `d seq` will be removed, `D seq` is removed, `X code reason execution` a refusal,
 * `S state`, `M seq id` mail that is held, `P reason` a problem, `C key answer` of the journal, `E key` is run, `F key` is finished,
 * `T count` turns of the event loop while a receipt was waited for.
 */
import { writeSync } from 'node:fs';
import process from 'node:process';
import { openBrokerStore } from '../../../dist/broker/store/broker-store.js';
import { systemClock } from '../../../dist/kernel/clock.js';

const [folder, what, ...numbers] = process.argv.slice(2);
const [inFlight = 8, count = 1_000_000, bytes = 200] = numbers.map(Number);
const [keys = 0, atMs = Date.now(), baseMs = atMs] = numbers.map(Number);
/** Of `call`: a wall that shows whatever the test says. */
const clock = what === 'call' ? { ...systemClock, date: () => new Date(atMs) } : systemClock;
/** Said when this returns. A pipe that is full is waited for: nothing else may happen meanwhile. */
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

const open = () =>
  openBrokerStore({
    folder,
    clock,
    onProblem: ({ details }) => say('P', details.reason),
    onState: (state) => say('S', state),
  });
const store = await open().catch((error) => {
  refused(error);
  process.exit(3);
});
say('opened');

if (what === 'put' || what === 'work') await put();
else if (what === 'read') await readAll();
else if (what === 'call') await call();
else if (what === 'turns') await turns();
else await new Promise((resolve) => process.stdin.once('end', resolve).resume());
await store.close();
say('closed');

async function put() {
  const run = `${process.pid}-${Date.now().toString(36)}`;
  let [next, isOver] = [0, false];
  const one = async () => {
    while (next < count && !isOver) {
      const id = `${run}-${next++}`;
      const mail = { to: 'host', from: { mailbox: 'w1', role: 'r' }, id, kind: 'request', sentAtMs: Date.now() };
      try {
        const { seq } = await store.mail.put({ ...mail, expiresAtMs: undefined, body: Buffer.alloc(bytes, id) });
        say('R', seq, id);
        if (what === 'work' && seq % 3 === 0) await remove(seq);
      } catch (error) {
        refused(error);
        isOver ||= store.mail.state === 'failed';
      }
    }
  };
  await Promise.all(Array.from({ length: inFlight }, one));
  if (!isOver) return;
  // Nothing is promised any more, whatever is asked.
  await store.mail.flush().then(() => say('flushed'), refused);
  await store.journal.finish('w1', 'k', Buffer.from('r')).then(() => say('finished'), refused);
  await store.close();
  await open().then(() => say('opened'), refused);
}

async function turns() {
  for (let at = 0; at < 5; at++) {
    let count = 0;
    const timer = setInterval(() => {
      count += 1;
    }, 2);
    const mail = { to: 'host', from: { mailbox: 'w1', role: 'r' }, id: `t${at}`, kind: 'request', sentAtMs: 1 };
    await store.mail.put({ ...mail, expiresAtMs: undefined, body: Buffer.alloc(10) });
    clearInterval(timer);
    say('T', count);
  }
}

async function remove(seq) {
  say('d', seq);
  store.mail.remove(seq);
  await store.mail.flush();
  say('D', seq);
}

async function readAll() {
  for (let after = 0; ; ) {
    const mails = await store.mail.read('host', after, { count: 1000, bytes: 1e8 });
    if (mails.length === 0) return;
    for (const { seq, id, body } of mails) say('M', seq, body.toString().startsWith(id) ? id : 'not-its-body');
    after = mails.at(-1).seq;
  }
}

/** Runs each key once where it may, in an order of its own, and asks for each a second time with other arguments. */
async function call() {
  const order = Array.from({ length: keys }, (_, at) => `k${at}`).sort(() => Math.random() - 0.5);
  const claim = (key, hash) =>
    store.journal.claim({
      mailbox: 'w1',
      key,
      hash,
      rememberUntil: new Date(baseMs + 24 * 3_600_000),
      isRepeatable: false,
    });
  const one = async () => {
    for (let key = order.pop(); key !== undefined; key = order.pop()) {
      const answer = await claim(key, 'hash');
      say('C', key, answer.kind === 'done' ? `done:${answer.reply}` : answer.kind);
      say('C', key, `other:${(await claim(key, 'other')).kind}`);
      if (answer.kind !== 'mine') continue;
      say('E', key);
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 5));
      await store.journal.finish('w1', key, Buffer.from(`reply-of-${key}`));
      say('F', key);
    }
  };
  await Promise.all([one(), one(), one(), one()]);
}
