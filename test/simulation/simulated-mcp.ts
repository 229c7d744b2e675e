/**
 * The common part of all simulated MCP servers, for any transport: the era, two tools, the ledger of executed calls, and the queues
 * of servers that handle one request at a time. The arguments of a call contain its duration.
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
  /** Undefined unless the request is a tool call. */
  readonly nonce: string | undefined;
  readonly takenAtMs: number;
  /** False while it waits in the queue. */
  isBegun: boolean;
  /** True if the connection for the answer is open, or was closed in this instant. */
  readonly isAwaited: () => boolean;
}

/** The outcome of a request, apart from faults of its transport. */
export type McpFate = 'answer' | 'rejects' | 'refuses';

const toolsOf = (release: number): string =>
  `[{"name":"read","annotations":{"readOnlyHint":true}},{"name":"write"},{"name":"release-${release}"}]`;
const serverInfo = '{"name":"simulated","version":"1"}';

/** The requests that one process has read and not finished. A server that handles one request at a time begins the next one then. */
export class RequestQueue {
  readonly jobs = new Set<Job>();
  readonly #parts: McpParts;
  readonly #waiting: (() => void)[] = [];
  #isBusy = false;

  constructor(parts: McpParts) {
    this.#parts = parts;
  }

  /** Runs `run` when the queue allows it. `run` calls `free` once, when the next request may begin. */
  take(message: McpMessage, isAwaited: () => boolean, run: (free: () => void) => void): void {
    const { clock, isOneAtATime } = this.#parts;
    const nonce = message.params?.arguments?.nonce;
    const job: Job = { nonce, takenAtMs: clock.nowMs(), isBegun: false, isAwaited };
    this.jobs.add(job);
    const begin = () => {
      job.isBegun = true;
      run(() => {
        if (this.jobs.delete(job) && isOneAtATime) this.#next();
      });
    };
    if (isOneAtATime && this.#isBusy) this.#waiting.push(begin);
    else {
      this.#isBusy = true;
      begin();
    }
  }

  #next(): void {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#isBusy = false;
  }
}

export class SimulatedMcp {
  readonly parts: McpParts;
  /** Nonce → how often it was executed. */
  readonly ledger = new Map<string, number>();
  readonly #queues = new Set<RequestQueue>();
  era: Era;
  /** Number of the release, which is part of a tool name. */
  release = 1;
  #cut: { readonly atMs: number; readonly jobs: readonly Job[] } | undefined;

  constructor(parts: McpParts) {
    this.parts = parts;
    this.era = parts.era;
  }

  /** The queue of a process that starts now. */
  openQueue(): RequestQueue {
    const queue = new RequestQueue(this.parts);
    this.#queues.add(queue);
    return queue;
  }

  /** The process has ended with all its requests. `isKilled`: the host ended it. */
  closeQueue(queue: RequestQueue, isKilled: boolean): void {
    if (!this.#queues.delete(queue) || !isKilled) return;
    const atMs = this.parts.clock.nowMs();
    const earlier = this.#cut?.atMs === atMs ? this.#cut.jobs : [];
    this.#cut = { atMs, jobs: [...earlier, ...queue.jobs] };
  }

  /** Requests that were read and are not finished. */
  get jobs(): readonly Job[] {
    return [...this.#queues].flatMap(({ jobs }) => [...jobs]);
  }

  /** Includes requests of processes that the host ends in this instant. */
  get cutJobs(): readonly Job[] {
    const cut = this.#cut?.atMs === this.parts.clock.nowMs() ? this.#cut.jobs : [];
    return [...cut, ...this.jobs];
  }

  /**
   * Waits for the duration in the arguments of a tool call, then executes it (unless `isExecuted` is false) and calls `done`.
   * `isAlive`: whether the process that began it still runs.
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
}
