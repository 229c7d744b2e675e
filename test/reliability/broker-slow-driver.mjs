/**
 * Runs alone in a PID namespace: two brokers, each with a thousand workers on their own sockets that call now and then, and one more
 * that is sent much. At one of the brokers that one stops reading. Prints one JSON line. Arguments: workers, seed, folder.
 *
 * Both are measured at the same time, so that what this machine does besides is the same for both, and what differs is only whether
 * the one reads.
 */
import { fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { WebSocket } from 'ws';
import { openHostLink } from '../../dist/broker/embedded/host-link.js';
import { openWorkerLink } from '../../dist/broker/embedded/worker-link.js';
import { digestOf } from '../../dist/config/keys.js';
import { Cancellation } from '../../dist/kernel/cancel-signal.js';
import { systemClock } from '../../dist/kernel/clock.js';

const count = Number(process.argv[2]);
const nap = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const wallMs = () => performance.timeOrigin + performance.now();
/** Of each worker. */
const everyMs = 4_000;
const unreadMsMax = 30_000;
/**
 * Of the one that is sent much: 2.5 MB in a second, in messages so large that as many as it may have unacknowledged are more than
 * its buffer and the system's together.
 */
const largeEveryMs = 100;
const large = `{"x":"${'x'.repeat(250_000)}"}`;
const never = new Cancellation();

// In memory where there is such a place: what others do to the disk of this machine meanwhile is not what is compared.
const folder = mkdtempSync(path.join(existsSync('/dev/shm') ? '/dev/shm' : process.argv[4], 'hostler-slow-'));

/** A broker with its host and its workers. */
class Place {
  isCut = false;
  failures = 0;
  tookMs = [];
  sent = new Set();
  taken = new Set();
  #name;
  #broker;
  #url;
  #keyOf;
  #workers = [];
  #number = 0;

  constructor(name) {
    this.#name = name;
    const names = ['host', 'slow', ...Array.from({ length: count }, (_, n) => `w${n}`)];
    this.#keyOf = new Map(names.map((each) => [each, `hk_${randomBytes(32).toString('base64url')}`]));
    this.#broker = fork(fileURLToPath(new URL('./metered-broker.mjs', import.meta.url)), { stdio: 'inherit' });
    this.#broker.on('message', (words) => {
      this.isCut ||= words.isCut === true;
    });
  }

  async open() {
    const credentials = [...this.#keyOf].map(([name, key]) => ({
      ...{ name, digest: digestOf(key), mailbox: name },
      ...(name === 'host' ? { kind: 'host', sendsTo: [] } : { kind: 'worker', role: 'all', sendsTo: ['host'] }),
    }));
    const { url } = await this.status({ folder: path.join(folder, this.#name), credentials });
    this.#url = url;
    await openHostLink({ url, key: this.#keyOf.get('host'), clock: systemClock })(
      {
        deliver: (each) => void each.answer(each.from.mailbox === 'slow' ? large : '{"n":1}').catch(() => {}),
        cancelled() {},
      },
      never,
    );
    for (let at = 0; at < count; at += 50)
      await Promise.all(Array.from({ length: Math.min(50, count - at) }, (_, n) => this.#openWorker(`w${at + n}`)));
    this.slow = await this.openSlow(true);
    this.sender = await this.openSlow(false);
  }

  async #openWorker(name) {
    const waiting = new Map();
    const replied = (id) => {
      waiting.get(id)?.();
      waiting.delete(id);
    };
    const settings = { url: this.#url, key: this.#keyOf.get(name), clock: systemClock };
    const link = await openWorkerLink(settings)({ replied, told() {} }, never);
    this.#workers.push({ link, waiting });
  }

  /** By hand, so that it can stop reading. */
  async openSlow(isSubscribed) {
    const socket = new WebSocket(this.#url, { maxPayload: 8 << 20 });
    socket.on('error', () => {});
    socket.on('message', (data) => {
      if (!data.subarray(0, 20).toString().startsWith('{"kind":"message"')) return;
      const { seq, lease, id } = JSON.parse(data.toString());
      this.taken.add(id);
      socket.send(JSON.stringify({ kind: 'ack', seq, lease }));
    });
    await once(socket, 'open');
    socket.send(JSON.stringify({ kind: 'hello', v: 1, key: this.#keyOf.get('slow') }));
    if (isSubscribed) socket.send('{"kind":"subscribe"}');
    return socket;
  }

  get missing() {
    return [...this.sent].filter((id) => !this.taken.has(id)).length;
  }

  async status(words = {}) {
    this.#broker.send(words);
    for (;;) {
      const [answer] = await once(this.#broker, 'message');
      if (!answer.isCut) return answer;
    }
  }

  /** Everybody calls, until then. */
  serve(isOver) {
    return Promise.all([this.#sendMuch(isOver), ...this.#workers.map((each, at) => this.#work(each, at, isOver))]);
  }

  async #sendMuch(isOver) {
    for (; !isOver(); await nap(largeEveryMs)) {
      const id = `s${this.sent.size}`;
      this.sent.add(id);
      this.sender.send(`{"kind":"deliver","id":"${id}","type":"request","to":"host","ttlMs":600000,"body":{}}`);
    }
  }

  async #work({ link, waiting }, at, isOver) {
    for (await nap((at * everyMs) / count); !isOver(); ) {
      const beganMs = performance.now();
      const id = `r${this.#number++}`;
      const replied = new Promise((resolve) => waiting.set(id, resolve));
      await link.send({ id, body: Buffer.from('{"a":1}'), ttlMs: 60_000 }).then(
        () => replied,
        () => this.failures++,
      );
      this.tookMs.push(performance.now() - beganMs);
      await nap(Math.max(0, beganMs + everyMs - performance.now()));
    }
  }

  /** Of all calls since it was last asked. */
  figures() {
    const sorted = this.tookMs.sort((a, b) => a - b);
    this.tookMs = [];
    const at = (part) => Math.round(sorted[Math.min(Math.floor(sorted.length * part), sorted.length - 1)] * 10) / 10;
    return { calls: sorted.length, p50Ms: at(0.5), p99Ms: at(0.99), maxMs: at(1) };
  }

  async close() {
    this.#broker.disconnect();
    await once(this.#broker, 'exit');
  }
}

const [it, control] = [new Place('it'), new Place('control')];
await it.open();
await control.open();
const both = (forMs, until = () => false) => {
  const endMs = performance.now() + forMs;
  const isOver = () => performance.now() >= endMs || until();
  return Promise.all([it.serve(isOver), control.serve(isOver)]);
};

// Everybody reads: what two brokers of the same kind differ by.
await both(5_000);
it.figures();
control.figures();
await both(10_000);
const reading = { it: it.figures(), control: control.figures() };

// One does not.
it.slow.pause();
const stoppedAtMs = wallMs();
await both(unreadMsMax, () => it.isCut);
const unread = { it: it.figures(), control: control.figures() };
const status = await it.status();
const itsCut = status.cut.find(({ reason }) => reason === 'slow_consumer');
const held = status.mailboxes.find(({ mailbox }) => mailbox === 'slow');

// What it did not take is there when it comes again.
it.slow.terminate();
await it.openSlow(true);
for (let n = 0; n < 300 && it.missing + control.missing > 0; n++) await nap(100);
const ratioOf = (pair) => Math.round((pair.it.p99Ms / pair.control.p99Ms) * 100) / 100;
console.log(
  JSON.stringify({
    ...{ workers: count, failures: it.failures + control.failures },
    ...{ reading, ratioWhileReading: ratioOf(reading), unread, ratio: ratioOf(unread) },
    bufferedMax: status.bufferedMax,
    cutAfterMs: itsCut ? Math.round(itsCut.atMs - stoppedAtMs) : undefined,
    cutAfterFullMs: itsCut ? Math.round(itsCut.atMs - status.fullAtMs) : undefined,
    cutMailbox: itsCut?.mailbox,
    ...{ sent: it.sent.size, heldAtCut: held?.count, missing: it.missing + control.missing },
    ...{ connections: status.connections, deadLetters: status.deadLetters, isControlCut: control.isCut },
  }),
);
await it.close();
await control.close();
rmSync(folder, { recursive: true, force: true });
process.exit(0);
