/**
 * What every simulated MCP server has in common, whatever carries its messages: its era, its two tools, the ledger of calls
 * that it executed, and for a server that does one thing at a time the queue of what waits for its turn.
 * The arguments of a call say how long the server works on it.
 */
import type { FakeClock } from '../../src/kernel/fake-clock.js';
import { type Random, randomInt } from '../../src/kernel/random.js';
import type { Era } from '../../src/wire/channel.js';
import type { Timers } from './timers.js';

export interface McpParts {
  readonly name: string;
  readonly clock: FakeClock;
  readonly timers: Timers;
  readonly random: Random;
  readonly era: Era;
  /** It reads nothing, not even a ping, while it works on a request. */
  readonly isOneAtATime: boolean;
  readonly trace: (line: string) => void;
}

export interface McpMessage {
  readonly id?: number;
  readonly method: string;
  readonly params?: { readonly name?: string; readonly arguments?: ToolCall };
}

interface ToolCall {
  readonly nonce: string;
  readonly workMs: number;
}

export interface Job {
  /** Undefined for a request that is no tool call. */
  readonly nonce: string | undefined;
  readonly takenAtMs: number;
  /** False while it waits for its turn. */
  isBegun: boolean;
  /** Whether the connection is there, or was until this instant, on which the answer is expected. */
  readonly isAwaited: () => boolean;
}

/** How a request ends, apart from what its transport does to it. */
export type McpFate = 'answer' | 'rejects' | 'refuses';

const toolsOf = (release: number): string =>
  `[{"name":"read","annotations":{"readOnlyHint":true}},{"name":"write"},{"name":"release-${release}"}]`;
const serverInfo = '{"name":"simulated","version":"1"}';

export class SimulatedMcp {
  readonly parts: McpParts;
  /** Nonce → how often it was executed. */
  readonly ledger = new Map<string, number>();
  /** What it has read and not finished. */
  readonly jobs = new Set<Job>();
  era: Era;
  /** One of its tools is named after it. */
  release = 1;
  readonly #waiting: (() => void)[] = [];
  #isBusy = false;
  #cut: { readonly atMs: number; readonly jobs: readonly Job[] } | undefined;

  constructor(parts: McpParts) {
    this.parts = parts;
    this.era = parts.era;
  }

  /** Does what `run` says when it is its turn. `run` calls `free` once, when the next may begin. */
  take(message: McpMessage, isAwaited: () => boolean, run: (free: () => void) => void): void {
    const { clock, isOneAtATime } = this.parts;
    const nonce = message.params?.arguments?.nonce;
    const job: Job = { nonce, takenAtMs: clock.nowMs(), isBegun: false, isAwaited };
    this.jobs.add(job);
    const begin = () => {
      job.isBegun = true;
      run(() => {
        // The process that took it is gone.
        if (!this.jobs.delete(job)) return;
        if (isOneAtATime) this.#next();
      });
    };
    if (isOneAtATime && this.#isBusy) this.#waiting.push(begin);
    else {
      this.#isBusy = true;
      begin();
    }
  }

  /** What the host has cut, or is about to cut, in this instant. */
  get cutJobs(): readonly Job[] {
    return this.#cut?.atMs === this.parts.clock.nowMs() ? this.#cut.jobs : [...this.jobs];
  }

  /** The process is gone, and with it all that it was about to do. `isKilled`: by the host, and not by itself. */
  forgetJobs(isKilled: boolean): void {
    if (isKilled) this.#cut = { atMs: this.parts.clock.nowMs(), jobs: [...this.jobs] };
    this.jobs.clear();
    this.#waiting.length = 0;
    this.#isBusy = false;
  }

  /**
   * Works on a tool call for as long as its arguments say, then executes it (unless `isExecuted` is false) and calls `done`.
   * `isAlive`: whether the server that began it still runs.
   */
  work({ nonce, workMs }: ToolCall, isExecuted: boolean, isAlive: () => boolean, done: () => void): void {
    const { timers, random } = this.parts;
    timers.after(workMs + randomInt(random, 0, 10), () => {
      if (!isAlive()) return;
      if (isExecuted) this.ledger.set(nonce, (this.ledger.get(nonce) ?? 0) + 1);
      done();
    });
  }

  /** The whole JSON-RPC answer. */
  answer({ id, method, params }: McpMessage, fate: McpFate): string {
    const error = (code: number) => `{"jsonrpc":"2.0","id":${id},"error":{"code":${code},"message":"no"}}`;
    if (fate === 'refuses') return error(-32602);
    const result = this.#result(method, params?.arguments?.nonce, fate);
    return result === undefined ? error(-32601) : `{"jsonrpc":"2.0","id":${id},"result":${result}}`;
  }

  #result(method: string, nonce: string | undefined, fate: McpFate): string | undefined {
    const { era } = this;
    if (method === 'tools/call')
      return `{"content":[{"type":"text","text":"${nonce}"}]${fate === 'rejects' ? ',"isError":true' : ''}}`;
    if (method === 'tools/list') return `{"tools":${toolsOf(this.release)}}`;
    if (era === 'modern')
      return method === 'server/discover'
        ? `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":${serverInfo}}}`
        : undefined;
    if (method === 'initialize')
      return `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":${serverInfo}}`;
    return method === 'ping' ? '{}' : undefined;
  }

  #next(): void {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#isBusy = false;
  }
}
