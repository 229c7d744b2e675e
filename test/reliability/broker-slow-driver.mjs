/**
 * Runs alone in a PID namespace: two hosts, each with many workers that call occasionally, and one worker that gets large replies.
 * At one of the hosts this worker stops reading. Prints one JSON line. Arguments: workers, seed, folder.
 *
 * Both hosts are measured at the same time, so that other load of this machine is the same for both.
 */
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { WebSocket } from 'ws';
import { nap, openWorld } from './broker-world.mjs';

const [count, folder] = [Number(process.argv[2]), process.argv[4]];
/** Each worker calls once in this time. */
const everyMs = 4_000;
const unreadMsMax = 90_000;
const largeBytes = 1024 * 1024;
const largeServer = fileURLToPath(new URL('../broker/e2e/large-server.mjs', import.meta.url));

class Place {
  failures = 0;
  tookMs = [];
  closedWith;
  /** Time and reason of the end of the connection, from the log of the host: a socket that does not read does not notice it. */
  cutAtMs;
  cutFor;
  replies = new Set();
  #tools = [];
  #number = 0;

  constructor(name) {
    this.folder = path.join(folder, name);
    mkdirSync(this.folder);
  }

  async open() {
    const names = ['slow', ...Array.from({ length: count }, (_, n) => `w${n}`)];
    const server = { command: process.execPath, args: [largeServer], pins: 'off', concurrency: 64 };
    this.world = await openWorld({
      ...{ folder: this.folder, engine: 'embedded', workers: Object.fromEntries(names.map((name) => [name, 'all'])) },
      config: { mcpServers: { small: server, large: server }, roles: { all: { allow: ['*/*'] } } },
      limits: { connections: count + 100 },
      level: 'info',
    });
    this.world.hosts[0].child.stderr.on('data', (chunk) => {
      const [, reason] = /worker 'slow' is disconnected \((\w+)\)/.exec(chunk.toString()) ?? [];
      if (reason === undefined) return;
      this.cutFor ??= reason;
      this.cutAtMs ??= performance.now();
    });
    for (let at = 0; at < count; at += 50)
      this.#tools.push(
        ...(await Promise.all(
          Array.from({ length: Math.min(50, count - at) }, (_, n) => this.world.connect(`w${at + n}`)),
        )),
      );
    await this.openSlow();
  }

  /** A hand-written worker that can stop reading. */
  async openSlow() {
    const headers = { authorization: `Bearer ${this.world.keyOf('slow')}`, 'hostler-session': 'slow' };
    const socket = new WebSocket(`ws://127.0.0.1:${this.world.port}/broker`, { maxPayload: 8 << 20, headers });
    socket.on('error', () => {});
    socket.on('close', (code) => {
      this.closedWith = code;
    });
    socket.on('message', (data) => {
      const { op, key } = JSON.parse(data.toString());
      if (op !== 'reply') return;
      this.replies.add(key);
      socket.send(JSON.stringify({ v: 1, op: 'ack', keys: [key] }));
    });
    await once(socket, 'open');
    this.slow = socket;
  }

  sendLarge(keys) {
    for (const key of keys)
      this.slow.send(
        JSON.stringify({
          ...{ v: 1, op: 'call', key, deadlineMs: 300_000, server: 'large', tool: 'work' },
          args: { bytes: largeBytes },
        }),
      );
  }

  ask(keys) {
    this.slow.send(JSON.stringify({ v: 1, op: 'ask', id: `q${this.#number++}`, keys }));
  }

  serve(isOver) {
    return Promise.all(this.#tools.map((tools, at) => this.#work(tools, at, isOver)));
  }

  async #work(tools, at, isOver) {
    for (await nap((at * everyMs) / count); !isOver(); ) {
      const beganMs = performance.now();
      await tools.execute('small', 'work', { bytes: 1 }, { deadlineMs: 60_000 }).catch(() => this.failures++);
      this.tookMs.push(performance.now() - beganMs);
      await nap(Math.max(0, beganMs + everyMs - performance.now()));
    }
  }

  /** Figures of all calls since the last report. */
  figures() {
    const sorted = this.tookMs.sort((a, b) => a - b);
    this.tookMs = [];
    const at = (part) => Math.round(sorted[Math.min(Math.floor(sorted.length * part), sorted.length - 1)] * 10) / 10;
    return { calls: sorted.length, p50Ms: at(0.5), p99Ms: at(0.99), maxMs: at(1) };
  }

  async close() {
    this.slow.terminate();
    await Promise.all(this.#tools.map((tools) => tools.close()));
    return this.world.close();
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
const keys = (from, to) => Array.from({ length: to - from }, (_, n) => `s${from + n}`);

// First phase: all workers read.
await both(5_000);
it.figures();
control.figures();
await both(10_000);
const reading = { it: it.figures(), control: control.figures() };

// Second phase: one worker does not read.
it.slow.pause();
const stoppedAtMs = performance.now();
for (const place of [it, control]) place.sendLarge(keys(0, 40));
await both(unreadMsMax, () => it.cutAtMs !== undefined);
// A paused socket notices its close only when it reads again.
const unread = { it: it.figures(), control: control.figures() };
it.slow.resume();
for (let n = 0; n < 100 && it.closedWith === undefined; n++) await nap(100);

// Unread replies are delivered when the worker requests them.
await it.openSlow();
for (let n = 0; n < 100 && it.replies.size + control.replies.size < 80; n++) {
  for (const place of [it, control]) place.ask(keys(0, 40).filter((key) => !place.replies.has(key)));
  await nap(300);
}
const ratioOf = (pair) => Math.round((pair.it.p99Ms / pair.control.p99Ms) * 100) / 100;
const figures = {
  ...{ workers: count, failures: it.failures + control.failures },
  ...{ reading, ratioWhileReading: ratioOf(reading), unread, ratio: ratioOf(unread) },
  ...{ cutFor: it.cutFor, cutAfterMs: Math.round((it.cutAtMs ?? Number.NaN) - stoppedAtMs), closedWith: it.closedWith },
  ...{ missing: 80 - it.replies.size - control.replies.size, isControlClosed: control.closedWith !== undefined },
};
const exits = [...(await it.close()), ...(await control.close())];
console.log(JSON.stringify({ ...figures, exits }));
process.exit(0);
