/**
 * An MCP server behind pipes that exists only on a FakeClock. Each start is a new process, which answers, hangs, dies or stays
 * silent. The real session, peer and supervisor use it through the channel that `open` returns.
 */
import type { Cancel } from '../../src/kernel/clock.js';
import { HostError } from '../../src/kernel/errors.js';
import { randomInt } from '../../src/kernel/random.js';
import {
  type Agreement,
  type Channel,
  type ChannelListener,
  frameText,
  type OutboundFrame,
  type Withdrawal,
} from '../../src/wire/channel.js';
import { MessageDecoder, newCounters } from '../../src/wire/envelope.js';
import { notOpen } from '../../src/wire/wire-errors.js';
import { type McpFate, type McpMessage, type McpParts, type RequestQueue, SimulatedMcp } from './simulated-mcp.js';

/** Outcome of a start. `silent`: the process sends nothing; `flap`: it dies after a while. */
export type Start = 'well' | 'exits' | 'missing' | 'silent' | 'flap';

export type StdioFate = McpFate | 'hang' | 'late' | 'crash';

export const stdioFaults: readonly StdioFate[] = ['rejects', 'refuses', 'hang', 'late', 'crash'];

export class SimulatedStdioServer {
  readonly kind = 'stdio';
  readonly mcp: SimulatedMcp;
  faultRate = 0;
  faults: readonly StdioFate[] = stdioFaults;
  /** Outcomes of the next starts. When empty, they succeed. */
  starts: Start[] = [];
  process: SimulatedProcess | undefined;
  readonly #processes = new Set<SimulatedProcess>();
  /** Number of processes that run or are being stopped. */
  live = 0;
  liveMax = 0;
  doomed = 0;

  constructor(parts: McpParts) {
    this.mcp = new SimulatedMcp(parts);
  }

  /** For `SimulatedTransports.stdio`. */
  readonly open = async (): Promise<Channel> => {
    const { name, trace } = this.mcp.parts;
    const start = this.starts.shift() ?? 'well';
    trace(`${name} starts: ${start}`);
    if (start === 'missing')
      throw new HostError('connect_failed', `server '${name}': no such command`, { reason: 'ENOENT' });
    const process = new SimulatedProcess(this, start, () => this.#processes.delete(process));
    this.#processes.add(process);
    this.process = process;
    return process;
  };

  mend(): void {
    this.faultRate = 0;
    this.starts = [];
    for (const process of this.#processes) process.calm();
  }

  /** Number of processes that never become ready or never answer again. */
  get hung(): number {
    return this.doomed + [...this.#processes].filter(({ isWedged }) => isWedged).length;
  }
}

class SimulatedProcess implements Channel {
  readonly kind = 'stdio';
  readonly counters = newCounters();
  readonly #server: SimulatedStdioServer;
  readonly #decoder = new MessageDecoder(this.counters);
  readonly #start: Start;
  readonly #queue: RequestQueue;
  readonly #onEnd: () => void;
  #listener: ChannelListener | undefined;
  #isWedged: boolean;
  #isRunning = true;
  #isClosed = false;
  #isDoomed: boolean;
  #cancelDeath: Cancel | undefined;
  #closing: Promise<void> | undefined;

  constructor(server: SimulatedStdioServer, start: Start, onEnd: () => void) {
    const { timers, random } = server.mcp.parts;
    this.#server = server;
    this.#start = start;
    this.#queue = server.mcp.openQueue();
    this.#onEnd = onEnd;
    this.#isWedged = start === 'silent';
    this.#isDoomed = start === 'silent' || start === 'exits';
    if (this.#isDoomed) server.doomed++;
    server.live++;
    server.liveMax = Math.max(server.liveMax, server.live);
    if (start === 'exits') this.#cancelDeath = timers.after(randomInt(random, 0, 50), () => this.die());
    if (start === 'flap') this.#cancelDeath = timers.after(randomInt(random, 50, 40_000), () => this.die());
  }

  start(listener: ChannelListener): void {
    this.#listener = listener;
  }

  adopt(_agreement: Agreement): void {}

  send(frame: OutboundFrame): HostError | undefined {
    const { timers, random, name } = this.#server.mcp.parts;
    if (!this.#isRunning || !this.#listener) return notOpen(name);
    frame.phase = 'written';
    const message = JSON.parse(frameText(frame)) as McpMessage;
    timers.after(randomInt(random, 0, 3), () => {
      if (this.#isRunning && !this.#isWedged) this.#read(message);
    });
    return undefined;
  }

  withdraw(_frame: OutboundFrame): Withdrawal {
    return 'notify';
  }

  /** Ends the process by itself. */
  die(): void {
    if (!this.#isRunning) return;
    this.#end(false);
    this.#tell('exit');
  }

  /** Stops reading and answering for ever. */
  wedge(): void {
    this.#isWedged = true;
  }

  get isWedged(): boolean {
    return this.#isWedged && this.#isRunning;
  }

  /** Cancels its planned death. */
  calm(): void {
    if (this.#start === 'flap') this.#cancelDeath?.();
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const { timers, random, name, trace } = this.#server.mcp.parts;
    this.#end(true);
    this.#tell('closed');
    const ms = random() < 0.3 ? randomInt(random, 1, 5_000) : 0;
    if (ms > 0) await new Promise<void>((resolve) => void timers.after(ms, resolve));
    this.#server.live--;
    trace(`${name} process is gone`);
  }

  #end(isKilled: boolean): void {
    if (!this.#isRunning) return;
    this.#isRunning = false;
    this.#cancelDeath?.();
    if (this.#isDoomed) this.#server.doomed--;
    this.#server.mcp.closeQueue(this.#queue, isKilled);
    this.#onEnd();
  }

  #tell(reason: 'exit' | 'closed'): void {
    const { name } = this.#server.mcp.parts;
    if (this.#isClosed) return;
    this.#isClosed = true;
    const facts = reason === 'exit' ? { reason, exitCode: 1 } : { reason };
    const error = new HostError('transport', `server '${name}': ${reason}`, { ...facts, execution: 'uncertain' });
    this.#listener?.closed(error);
  }

  #read(message: McpMessage): void {
    if (message.id === undefined) return;
    this.#queue.take(
      message,
      () => true,
      (free) => this.#serve(message, free),
    );
  }

  #serve(message: McpMessage, free: () => void): void {
    const { mcp } = this.#server;
    const { random, timers, isOneAtATime } = mcp.parts;
    const fate = this.#fate();
    const lateMs = fate === 'late' || (fate === 'hang' && isOneAtATime) ? randomInt(random, 5_000, 70_000) : 0;
    const end = () => {
      if (!this.#isRunning) return;
      free();
      if (fate === 'crash') return this.die();
      if (fate !== 'hang' && !this.#isWedged) this.#say(mcp.answer(message, isMcpFate(fate) ? fate : 'answer'));
    };
    const after = () => {
      if (lateMs === 0) end();
      else timers.after(lateMs, end);
    };
    const call = message.method === 'tools/call' ? message.params?.arguments : undefined;
    const isExecuted = fate !== 'refuses' && ((fate !== 'hang' && fate !== 'crash') || random() < 0.5);
    if (call) mcp.work(call, isExecuted, () => this.#isRunning, after);
    else timers.after(randomInt(random, 0, 5), () => this.#isRunning && after());
  }

  #say(text: string): void {
    const bytes = Buffer.from(text);
    this.#decoder.decode(bytes, 0, bytes.length, (envelope) => {
      if (!this.#isClosed) this.#listener?.message(envelope, undefined);
    });
  }

  #fate(): StdioFate {
    const { faultRate, faults, mcp } = this.#server;
    if (mcp.parts.random() >= faultRate) return 'answer';
    return faults[randomInt(mcp.parts.random, 0, faults.length - 1)] ?? 'answer';
  }
}

const isMcpFate = (fate: StdioFate): fate is McpFate => fate === 'answer' || fate === 'rejects' || fate === 'refuses';
