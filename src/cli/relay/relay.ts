/**
 * Connects one client to the host of its configuration, and to the next host when one is lost.
 * Not here: the decisions (relay-state.ts, request-table.ts), finding and starting a host (start-host.ts).
 * Invariants:
 * - Whole lines are forwarded unchanged, so the loss of a host never splits a message.
 * - The number and bytes of lines that wait for a host are bounded; at a bound the client is paused. While one side does not read,
 *   the other side is paused.
 * - `closed` resolves once, after the last answer was written.
 */
import type { Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import type { Clock } from '../../kernel/clock.js';
import { deferred } from '../../kernel/deferred.js';
import { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { LineReader } from '../../wire/line-reader.js';
import { RPC } from '../../wire/methods.js';
import { isNewerVersion, parseStopping, type Welcome } from './hello.js';
import type { Opened } from './open-link.js';
import { firstState, type RelayEffect, type RelayEvent, type RelayState, step } from './relay-state.js';
import { RequestTable } from './request-table.js';

export interface RelayOptions {
  readonly input: Readable;
  readonly output: Writable;
  readonly clock: Clock;
  readonly version: string;
  /** Finds or starts a host. */
  readonly join: () => Promise<Opened>;
  readonly onJoined: (welcome: Welcome) => void;
  /** Called if this process or its configuration cannot use the connection, and only before any host was joined. */
  readonly onUnusable: (opened: Opened & { readonly kind: 'refused' | 'unreachable' }) => void;
  readonly onFailure: (reason: string) => void;
  /** Called once, after the first line of a host. */
  readonly onServing: () => void;
}

const queuedBytesMax = 8 * 1024 * 1024;
const queuedLinesMax = 10_000;
const answerBytesMax = 64 * 1024 * 1024;
const NEWLINE = Buffer.from('\n');

export class Relay {
  readonly #options: RelayOptions;
  readonly #table = new RequestTable();
  readonly #reader: LineReader;
  readonly #toHost = new LineBatch();
  readonly #closed = deferred();
  #state: RelayState = firstState;
  #socket: Socket | undefined;
  #hostVersion = '';
  #hasJoined = false;
  /** Lines of the client that wait for a host. */
  #queue: Buffer[] = [];
  #queuedBytes = 0;
  #isAttached = false;
  #isInputEnded = false;
  #isServing = false;

  constructor(options: RelayOptions) {
    this.#options = options;
    this.#reader = new LineReader(
      LIMITS.frameBytes,
      (bytes, start, end) => this.#line(bytes, start, end),
      () => this.#tooLong(),
    );
  }

  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  begin(): void {
    this.#event({ kind: 'begun' });
  }

  /** Called after the first attempt: if no socket can be used, another part of the process reads the input instead. */
  #attach(): void {
    if (this.#isAttached) return;
    this.#isAttached = true;
    const { input, output } = this.#options;
    output.on('error', this.#clientGone);
    output.on('drain', () => this.#socket?.resume());
    input.on('data', this.#data);
    for (const event of ['end', 'error', 'close']) input.on(event, this.end);
  }

  get isInputEnded(): boolean {
    return this.#isInputEnded;
  }

  /** The client sends no more. Requests that it sent are still answered. */
  readonly end = (): void => {
    if (this.#isInputEnded) return;
    this.#isInputEnded = true;
    const { input } = this.#options;
    this.#reader.end();
    this.#flush();
    input.off('data', this.#data);
    input.pause();
    if (this.#state.kind === 'joined') this.#socket?.end();
    this.#endWhenDone();
  };

  readonly #data = (chunk: Buffer): void => {
    this.#reader.push(chunk);
    this.#flush();
  };

  #line(bytes: Buffer, start: number, end: number): void {
    if (this.#state.kind === 'joined') {
      this.#handOver(bytes, start, end);
      return;
    }
    if (start === end) return;
    this.#queue.push(Buffer.from(bytes.subarray(start, end)));
    this.#queuedBytes += end - start;
    if (this.#isQueueFull) this.#options.input.pause();
    this.#event({ kind: 'request' });
  }

  get #isQueueFull(): boolean {
    return this.#queuedBytes > queuedBytesMax || this.#queue.length > queuedLinesMax;
  }

  #handOver(bytes: Buffer, start: number, end: number): void {
    const line = this.#table.fromClient(bytes, start, end);
    if (line === 'forward') this.#toHost.add(bytes, start, end);
    else if (line !== 'drop') this.#write(line.answer);
  }

  #tooLong(): void {
    const message = `the message has more than ${LIMITS.frameBytes} bytes`;
    this.#write(JSON.stringify({ jsonrpc: '2.0', error: { code: RPC.invalidRequest, message } }));
  }

  #flush(): void {
    const socket = this.#socket;
    if (!socket || this.#toHost.isEmpty) return;
    if (this.#toHost.writeTo(socket)) return;
    this.#options.input.pause();
  }

  #event(event: RelayEvent): void {
    const isNewer = isNewerVersion(this.#options.version, this.#hostVersion);
    const [state, effects] = step(this.#state, event, this.#options.clock.nowMs(), isNewer);
    this.#state = state;
    for (const effect of effects) this.#perform(effect);
    this.#endWhenDone();
  }

  #perform(effect: RelayEffect): void {
    switch (effect.do) {
      case 'connect':
        if (this.#isInputEnded && this.#queue.length === 0) return;
        this.#options.join().then(this.#opened, (error) => this.#event({ kind: 'failed', reason: String(error) }));
        return;
      case 'settle':
        return this.#settle();
      case 'resume':
        return this.#resume();
      case 'refuse':
        return this.#refuse(effect.reason);
      case 'wake':
        this.#options.clock.at(effect.atMs, () => this.#event({ kind: 'woke' }));
        return;
      case 'exit':
        return this.#close();
      default:
        effect satisfies never;
    }
  }

  readonly #opened = (opened: Opened): void => {
    switch (opened.kind) {
      case 'connected':
        if (this.#state.kind !== 'connecting') return void opened.socket.destroy();
        return this.#connected(opened.socket, opened.welcome);
      case 'refused':
      case 'unreachable':
        // After input was read or a host was joined, no other part of this process can serve the client.
        if (opened.kind === 'refused' ? !this.#hasJoined : !this.#isAttached) return this.#options.onUnusable(opened);
        return this.#failed(
          opened.kind === 'refused'
            ? `the running Hostler now has the configuration ${opened.config}`
            : `its socket cannot be used (${opened.code})`,
        );
      case 'failed':
        return this.#failed(opened.reason, opened.isFinal);
      default:
        return this.#failed('the running Hostler is ending');
    }
  };

  #failed(reason: string, isFinal = false): void {
    this.#attach();
    this.#options.onFailure(reason);
    this.#event({ kind: 'failed', reason, isFinal });
  }

  #connected(socket: Socket, welcome: Welcome): void {
    const { input, output } = this.#options;
    this.#socket = socket;
    this.#hostVersion = welcome.version;
    const toClient = new LineBatch();
    const reader = new LineReader(
      answerBytesMax,
      (bytes, start, end) => {
        const line = this.#table.fromHost(bytes, start, end);
        if (line === 'forward') toClient.add(bytes, start, end);
        else if (line === 'own') this.#own(bytes.toString('utf8', start, end));
        else if (line !== 'swallow') {
          toClient.add(bytes, start, end);
          for (const each of line.after) toClient.addLine(each);
        }
      },
      () => socket.destroy(),
    );
    socket.on('data', (chunk: Buffer) => {
      reader.push(chunk);
      if (!toClient.isEmpty && !toClient.writeTo(output)) socket.pause();
      if (this.#isInputEnded) this.#endWhenDone();
      if (!this.#isServing) this.#options.onServing();
      this.#isServing = true;
    });
    socket.on('drain', () => input.resume());
    // The host sends nothing after its end.
    socket.on('end', () => socket.destroy());
    socket.on('close', () => {
      if (this.#socket !== socket) return;
      this.#socket = undefined;
      // A connection that was ended emits no `drain`, so the input may still be paused.
      if (!this.#isInputEnded && !this.#isQueueFull) input.resume();
      this.#event({ kind: 'lost' });
    });
    this.#attach();
    this.#options.onJoined(welcome);
    this.#event({ kind: 'connected' });
    socket.resume();
  }

  #own(line: string): void {
    const reason = parseStopping(line);
    if (reason === undefined) return;
    this.#event({ kind: 'stopping', reason });
    // The host receives all earlier lines before this end, and answers them.
    if (this.#state.kind === 'leaving') this.#socket?.end();
  }

  #resume(): void {
    const socket = this.#socket as Socket;
    socket.cork();
    if (this.#hasJoined) {
      for (const line of this.#table.replay()) socket.write(`${line}\n`);
      for (const line of this.#table.changes()) this.#write(line);
    }
    this.#hasJoined = true;
    for (const line of this.#take()) this.#handOver(line, 0, line.length);
    this.#flush();
    socket.uncork();
    if (this.#isInputEnded) socket.end();
  }

  /** Requests that can be sent again are queued before the lines that wait. */
  #settle(): void {
    const { answers, again } = this.#table.settle(this.#isInputEnded);
    for (const answer of answers) this.#write(answer);
    this.#queue = [...again, ...this.#queue];
    this.#queuedBytes += again.reduce((sum, { length }) => sum + length, 0);
    if (this.#state.kind === 'away' && this.#queue.length > 0) this.#event({ kind: 'request' });
  }

  #refuse(reason: string): void {
    const error = new HostError('connect_failed', `Hostler cannot be reached: ${reason}`, {
      ...{ reason: 'host_unavailable', execution: 'not_executed' },
      hint: 'correct the cause, then try again',
    });
    for (const line of this.#take()) {
      const answer = this.#table.refuse(line, error);
      if (answer !== undefined) this.#write(answer);
    }
  }

  #take(): readonly Buffer[] {
    const lines = this.#queue;
    this.#queue = [];
    this.#queuedBytes = 0;
    if (!this.#isInputEnded) this.#options.input.resume();
    return lines;
  }

  #write(line: string): void {
    this.#options.output.write(`${line}\n`);
  }

  readonly #clientGone = (): void => {
    this.#socket?.destroy();
    this.#close();
  };

  /** Ends the relay after the end of its input. A joined host first answers everything, and then closes the connection. */
  #endWhenDone(): void {
    if (!this.#isInputEnded || this.#state.kind === 'joined' || this.#state.kind === 'leaving') return;
    if (this.#queue.length === 0) this.#close();
  }

  #close(): void {
    this.#state = { kind: 'over' };
    this.#closed.resolve();
  }
}

/** Collects whole lines. Adjacent lines of one chunk are written as one range, without a copy. */
class LineBatch {
  readonly #parts: Buffer[] = [];
  #bytes: Buffer | undefined;
  #from = 0;
  #to = 0;

  get isEmpty(): boolean {
    return this.#bytes === undefined && this.#parts.length === 0;
  }

  /** `end` is the position of the newline. A line that was assembled from several chunks has no newline. */
  add(bytes: Buffer, start: number, end: number): void {
    if (end >= bytes.length) {
      this.#finish();
      this.#parts.push(bytes.subarray(start, end), NEWLINE);
    } else if (this.#bytes === bytes && this.#to === start) this.#to = end + 1;
    else {
      this.#finish();
      this.#bytes = bytes;
      this.#from = start;
      this.#to = end + 1;
    }
  }

  addLine(line: string): void {
    this.#finish();
    this.#parts.push(Buffer.from(`${line}\n`));
  }

  /** Returns false if the caller should wait for `drain`. */
  writeTo(stream: Writable): boolean {
    this.#finish();
    if (this.#parts.length > 1) stream.cork();
    let isFree = true;
    for (const part of this.#parts) isFree = stream.write(part);
    if (this.#parts.length > 1) stream.uncork();
    this.#parts.length = 0;
    return isFree;
  }

  #finish(): void {
    if (this.#bytes) this.#parts.push(this.#bytes.subarray(this.#from, this.#to));
    this.#bytes = undefined;
  }
}
