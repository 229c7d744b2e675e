/**
 * The ten servers of the soak: their configuration, kills, restarts and edits, and the times of these disturbances.
 * Six are stdio children of Hostler, which restarts them itself; four are HTTP servers that this process starts again.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { answersHttp, freePort } from './ports.mjs';

const here = (file) => fileURLToPath(new URL(file, import.meta.url));
const nap = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const lookEveryMs = 20;
/** The soak fails if a server is not back after this time. */
const backMsMax = 30_000;

/** Base class of both kinds: the log of disturbances. */
class Disturbed {
  generation = 0;
  /** {kind, server, fromMs, backMs}: from the kill or edit until the server can be used again. */
  disturbances = [];

  async disturb(kind, back) {
    const row = { kind, server: this.name, fromMs: performance.now(), backMs: Infinity };
    this.disturbances.push(row);
    for (const untilMs = row.fromMs + backMsMax; performance.now() < untilMs; await nap(lookEveryMs)) {
      if (!(await back())) continue;
      row.backMs = performance.now();
      return;
    }
  }
}

class StdioServer extends Disturbed {
  #pidFile;
  #env;

  constructor(name, folder, { delayMs, listEveryMs }) {
    super();
    this.name = name;
    this.#pidFile = path.join(folder, `${name}.pid`);
    this.#env = { PID_FILE: this.#pidFile, DELAY_MS: String(delayMs), LIST_EVERY_MS: String(listEveryMs) };
  }

  async start() {}

  get entry() {
    const env = { ...this.#env, GENERATION: String(this.generation) };
    return { command: 'perl', args: [here('./soak-server.pl')], env };
  }

  get isUp() {
    return this.#running !== undefined;
  }

  get #running() {
    try {
      const [pid, generation] = readFileSync(this.#pidFile, 'utf8').trim().split(' ').map(Number);
      return { pid, generation };
    } catch {
      return undefined;
    }
  }

  kill() {
    const { pid } = this.#running;
    process.kill(pid, 'SIGKILL');
    return this.disturb('kill', () => this.#running.pid !== pid);
  }

  /** Call before the new entry is written. */
  edit() {
    this.generation++;
    return this.disturb('edit', () => this.#running.generation === this.generation);
  }

  async end() {}
}

class HttpServer extends Disturbed {
  #env;
  #child;
  #gone;
  #heard = 0;

  constructor(name, { era, forgotten = 404, delayMs, listEveryMs }) {
    super();
    this.name = name;
    this.#env = { ERA: era, FORGOTTEN: forgotten, DELAY_MS: delayMs, LIST_EVERY_MS: listEveryMs };
  }

  async start() {
    this.port ??= await freePort();
    const env = { ...process.env, ...this.#env, PORT: this.port };
    this.#child = fork(here('./soak-http-server.mjs'), { env });
    this.#gone = once(this.#child, 'exit');
    this.#child.on('message', ({ generation }) => {
      if (generation !== undefined) this.#heard = Number(generation);
    });
    await Promise.race([once(this.#child, 'message'), this.#gone]);
  }

  get entry() {
    return { url: `http://127.0.0.1:${this.port}/mcp`, headers: { 'x-generation': String(this.generation) } };
  }

  get isUp() {
    return true;
  }

  async kill(downMs) {
    const child = this.#child;
    child.kill('SIGKILL');
    const back = this.disturb('kill', () => this.#child !== child && answersHttp(this.port));
    await this.#gone;
    await nap(downMs);
    await this.start();
    await back;
  }

  /** The edit is in effect when a request carries the new value. */
  edit() {
    this.generation++;
    return this.disturb('edit', () => this.#heard === this.generation);
  }

  async end() {
    this.#child.kill('SIGKILL');
    await this.#gone;
  }
}

/** `listEveryMs`: interval between list changes of all servers together. Two servers change their lists alternately. */
export const soakServers = (folder, listEveryMs) => [
  new StdioServer('s0', folder, { delayMs: 0, listEveryMs: listEveryMs * 2 }),
  new StdioServer('s1', folder, { delayMs: 0, listEveryMs: 0 }),
  new StdioServer('s2', folder, { delayMs: 5, listEveryMs: 0 }),
  new StdioServer('s3', folder, { delayMs: 20, listEveryMs: 0 }),
  new StdioServer('s4', folder, { delayMs: 100, listEveryMs: 0 }),
  new StdioServer('s5', folder, { delayMs: 250, listEveryMs: 0 }),
  new HttpServer('h0', { era: 'legacy', forgotten: 404, delayMs: 5, listEveryMs: listEveryMs * 2 }),
  new HttpServer('h1', { era: 'legacy', forgotten: 400, delayMs: 100, listEveryMs: 0 }),
  new HttpServer('h2', { era: 'modern', delayMs: 0, listEveryMs: 0 }),
  new HttpServer('h3', { era: 'modern', delayMs: 100, listEveryMs: 0 }),
];
