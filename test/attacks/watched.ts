/** A gateway in a separate process that reports its stalls and memory (watched-gateway.mjs). */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const script = fileURLToPath(new URL('./watched-gateway.mjs', import.meta.url));

const MiB = 1_048_576;

export interface Watched {
  /** Longest stall of its event loop since the measurement began. */
  readonly stallMs: number;
  /** Longest delay as the runtime measures it, including delays that other processes caused. */
  readonly delayMs: number;
  /** Largest growth of resident memory since the beginning. */
  readonly grewMiB: number;
  /** Growth that is left after garbage was collected and freed memory was returned. */
  readonly keptMiB: number;
  /** Growth of memory in use, as the runtime reports it: without freed memory that the allocator keeps. */
  readonly heldMiB: number;
  readonly problems: readonly string[];
}

export class WatchedGateway {
  readonly folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-watched-'));
  #child!: ChildProcess;
  #rss = 0;
  #held = 0;
  port = 0;

  get pid(): number {
    return this.#child.pid as number;
  }

  async start(mcpServers: Record<string, unknown> = {}): Promise<void> {
    const args = [JSON.stringify({ mcpServers }), path.join(this.folder, 'state')];
    this.#child = fork(script, args, { execArgv: ['--expose-gc'], stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    const [{ url }] = (await once(this.#child, 'message')) as [{ url: string }];
    this.port = Number(new URL(url).port);
  }

  async begin(): Promise<void> {
    const { rss, held } = await this.#ask<{ rss: number; held: number }>('begin');
    [this.#rss, this.#held] = [rss, held];
  }

  /** Restarts the server and lists its tools. Returns their number, or the code of the error. */
  async list(server: string): Promise<number | string> {
    return (await this.listed(server)).outcome;
  }

  /** Also returns the time from the list request to its answer. */
  listed(server: string): Promise<{ readonly outcome: number | string; readonly tookMs: number }> {
    return this.#ask(`list ${server}`);
  }

  async read(): Promise<Watched> {
    const { rssMax, rss, held, ...seen } = await this.#ask<
      Pick<Watched, 'stallMs' | 'delayMs' | 'problems'> & { rssMax: number; rss: number; held: number }
    >('read');
    const [grewMiB, keptMiB] = [(rssMax - this.#rss) / MiB, (rss - this.#rss) / MiB];
    return { ...seen, grewMiB, keptMiB, heldMiB: (held - this.#held) / MiB };
  }

  async #ask<T>(word: string): Promise<T> {
    const answer = once(this.#child, 'message');
    this.#child.send(word);
    return (await answer)[0] as T;
  }

  async remove(): Promise<void> {
    const closed = once(this.#child, 'close');
    this.#child.send('close');
    await closed;
    rmSync(this.folder, { recursive: true, force: true });
  }
}
