/** A gateway in a process of its own, of which stalls and memory are known (watched-gateway.mjs). */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const script = fileURLToPath(new URL('./watched-gateway.mjs', import.meta.url));

const MiB = 1_048_576;

export interface Watched {
  /** The longest that its event loop stood still since it was last begun. */
  readonly stallMs: number;
  /** The same as the runtime measures it, with what others did to it. */
  readonly delayMs: number;
  /** How much resident memory rose above where it began, at most. */
  readonly grewMiB: number;
  /** How much of that is left when what can be given back was. */
  readonly keptMiB: number;
  /** How much more is in use, by what the runtime says: without what was freed and stays with the allocator. */
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

  /** Has the server started anew, and its tools listed: how many there are, or the code of what went wrong. */
  async list(server: string): Promise<number | string> {
    return (await this.listed(server)).outcome;
  }

  /** The same, and how long it took from asking the started server for them. */
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
