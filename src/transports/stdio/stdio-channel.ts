/**
 * A channel to a child process over stdin and stdout, one message per line.
 * Not here: restarting (supervisor/), answers and deadlines (wire/peer.ts), stopping a child (child.ts).
 * Invariants, in addition to those of wire/channel.ts:
 * - stdout and stderr are always read, so a server never blocks on a full pipe.
 * - When the child exits, queued frames fail at once. Frames that are being written wait for the end of its output, at most
 *   `halfSentMs`. A batch counts as written with its last byte, but its first frame may already be answered. Written frames
 *   wait for answers in the pipe, at most `stdoutDrainMs`.
 * - Every ending stops the process group of the child.
 */
import type { Readable } from 'node:stream';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { deferred } from '../../kernel/deferred.js';
import { HostError, type SendPhase } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import type { Channel, ChannelListener, OutboundFrame, Withdrawal } from '../../wire/channel.js';
import { type Envelope, MessageDecoder, newCounters } from '../../wire/envelope.js';
import { LineReader, oversizedHead, oversizedTail } from '../../wire/line-reader.js';
import { LineWriter } from '../../wire/line-writer.js';
import { inboundTooLarge, overloaded } from '../../wire/wire-errors.js';
import { childEnvironment, type DeclaredEnvironment } from '../environment.js';
import { type ChannelEnd, channelEndError, frameError } from './channel-end-errors.js';
import type { Child, ChildExit, StopReport } from './child.js';
import { drain, readFairly, readIntoSharedBuffer, stdoutDrainMs, whenEnded } from './child-output.js';
import type { ChildProcesses } from './child-processes.js';
import { resolveCommand } from './command.js';
import { FAST_PACE, type LadderPace } from './process-group.js';
import { sandboxAmbient } from './sandbox/private-home.js';
import { type SandboxProfile, sandboxedExit, wrapInSandbox } from './sandbox/sandbox.js';
import { StderrRing } from './stderr-ring.js';

export interface StdioSpec {
  readonly server: string;
  readonly command: string;
  readonly args?: readonly string[];
  /** Declared variables. The child gets these and a short baseline. */
  readonly env?: DeclaredEnvironment;
  readonly cwd?: string;
  readonly sandbox?: SandboxProfile;
  /** Additional paths that a sandboxed server may read, absolute or relative to `cwd`. */
  readonly readablePaths?: readonly string[];
  readonly writablePaths?: readonly string[];
  readonly stopPace?: LadderPace;
}

interface StdioDeps {
  readonly clock: Clock;
  readonly cleanText: (text: string) => string;
  readonly children: ChildProcesses;
}

interface StdioDescription {
  readonly pid: number;
  readonly exit: ChildExit | undefined;
  /** Undefined until the stop has ended. */
  readonly stop: StopReport | undefined;
  readonly noisy: boolean;
  readonly stderr: Pick<StderrRing, 'tail' | 'lines'>;
}

/** Maximum wait for the end of an oversized line, which may contain the id of its request. */
const lineEndMs = 1_000;
/** With this wait, every frame has its outcome within 100 ms, including the time until the system reports the exit. */
const halfSentMs = 50;

const stderrLineChars = 500;

/** Time that a broken stdin waits for an exit, which is the probable cause and the better explanation. */
const exitAfterBreakMs = 50;

/** Starts the server. Rejects with `connect_failed` if it cannot be started. */
export async function openStdio(spec: StdioSpec, deps: StdioDeps): Promise<StdioChannel> {
  if (process.platform === 'win32') throw unsupportedPlatform(spec.server);
  const { server, command, args = [], cwd = process.cwd(), sandbox = 'group' } = spec;
  const { hostPaths } = deps.children;
  const ambient = sandbox === 'group' ? deps.children.ambient : sandboxAmbient(deps.children.ambient);
  const child = await deps.children.start(async (mark) => {
    const env = childEnvironment(ambient, spec.env ?? {}, mark);
    const file = await resolveCommand({ server, command, cwd, env });
    const base = { server, cwd, env };
    if (sandbox === 'group') return { ...base, file, args, leaderIsSandbox: false };
    const searchPath = ambient.PATH ?? '/usr/bin:/bin';
    const { readablePaths = [], writablePaths = [] } = spec;
    const paths = { cwd, declaredCwd: spec.cwd, readablePaths, writablePaths, hostPaths, searchPath };
    const wrapped = await wrapInSandbox({ server, file, args, env, ...paths });
    return { ...base, ...wrapped, leaderIsSandbox: true };
  });
  return new StdioChannel(child, spec, deps);
}

/** Without process groups a stop cannot reach all processes of a server. */
const unsupportedPlatform = (server: string) =>
  new HostError('connect_failed', `server '${server}' runs as a child process, which is not supported on Windows`, {
    server,
    reason: 'unsupported_platform',
    field: 'command',
    execution: 'not_executed',
    hint: 'run Hostler in WSL or a Linux container, or connect to the server over HTTP',
  });

export class StdioChannel implements Channel {
  readonly kind = 'stdio';
  readonly counters = newCounters();
  readonly #server: string;
  readonly #profile: SandboxProfile;
  readonly #stopPace: LadderPace | undefined;
  readonly #clock: Clock;
  readonly #child: Child;
  readonly #writer: LineWriter<OutboundFrame>;
  readonly #decoder = new MessageDecoder(this.counters);
  readonly #reader: LineReader;
  readonly #stderr: StderrRing;
  readonly #stderrStream: Readable;
  readonly #noise: NoiseMeter;
  #listener: ChannelListener | undefined;
  /** First reason why no more frames are sent. */
  #ending: ChannelEnd | undefined;
  #halfSent: OutboundFrame[] = [];
  #closedWith: HostError | undefined;
  #cancelWait: Cancel = () => {};
  #closing: Promise<void> | undefined;
  /** Resolved after `closed` was reported. */
  readonly #over = deferred();

  constructor(child: Child, spec: StdioSpec, deps: StdioDeps) {
    this.#server = spec.server;
    this.#profile = spec.sandbox ?? 'group';
    this.#stopPace = spec.stopPace;
    this.#clock = deps.clock;
    this.#child = child;
    this.#stderr = new StderrRing(LIMITS.stderrBytes, deps.cleanText, () => deps.clock.date().getTime());
    this.#noise = new NoiseMeter(deps.clock);
    this.#writer = new LineWriter(child.stdin, {
      defer: setImmediate,
      beforeWrite: () => this.#listener?.beforeWrite?.(),
      onBroken: () => this.#stdinBroke(),
    });
    this.#reader = new LineReader(LIMITS.frameBytes, this.#line, (bytes, head) => this.#lineTooLong(bytes, head));
    this.#stderrStream = readIntoSharedBuffer(child.stderr, (bytes) => this.#stderr.push(bytes));
    child.onExit(() => this.#exited());
  }

  start(listener: ChannelListener): void {
    this.#listener = listener;
    const closedWith = this.#closedWith;
    if (closedWith) return queueMicrotask(() => listener.closed(closedWith));
    const { stdout } = this.#child;
    readFairly(stdout, (chunk) => this.#reader.push(chunk));
    stdout.once('end', () => this.#stdoutEnded());
  }

  send(frame: OutboundFrame): HostError | undefined {
    if (this.#ending) return frameError(this.#server, this.#ending, this.#child.exit, 'queued');
    const { bytes } = this.#writer;
    if (bytes + frame.bytes > LIMITS.outboundBytes) return overloaded(this.#server, bytes);
    this.#writer.write(frame);
    return undefined;
  }

  get endedBy(): HostError | undefined {
    return this.#closedWith ?? (this.#ending && this.#endingError(this.#ending));
  }

  withdraw(frame: OutboundFrame): Withdrawal {
    return this.#writer.withdraw(frame) ? 'unsent' : 'notify';
  }

  /** Lines have no headers, so the agreed version changes nothing here. */
  adopt(): void {}

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  describe(): StdioDescription {
    const { pid, exit, report } = this.#child;
    return { pid, exit, stop: report, noisy: this.#noise.noisy, stderr: this.#stderr };
  }

  async #close(): Promise<void> {
    // Closing stdin lets the server finish. Answers that arrive before its exit are delivered.
    this.#end('closed');
    await this.#child.stop(this.#stopPace);
    // A child that survived SIGKILL has no exit event that would finish the channel.
    if (!this.#child.exit) this.#finish();
    await this.#over.promise;
  }

  readonly #line = (bytes: Buffer, start: number, end: number): void => {
    const junkBefore = this.counters.junk;
    this.#decoder.decode(bytes, start, end, this.#deliver);
    if (this.counters.junk !== junkBefore) this.#noise.count(this.counters.junk - junkBefore);
  };

  readonly #deliver = (envelope: Envelope): void => {
    if (!this.#closedWith) this.#listener?.message(envelope, undefined);
  };

  #exited(): void {
    this.#cancelWait();
    this.#end('exit');
    whenEnded(this.#clock, this.#child.stdout, this.#clock.nowMs() + halfSentMs, () => this.#failHalfSent());
    this.#drain();
  }

  #stdinBroke(): void {
    if (this.#ending || this.#child.exit) return;
    this.#waitForExit(exitAfterBreakMs, () => {
      this.#end('stdin_closed');
      void this.#child.stop(this.#stopPace);
      this.#drain();
    });
  }

  #stdoutEnded(): void {
    this.#reader.end();
    if (this.#ending || this.#child.exit) return;
    this.#waitForExit(stdoutDrainMs, () => {
      this.#end('stdout_closed');
      void this.#child.stop(this.#stopPace);
      this.#finish();
    });
  }

  /** Waits for the end of the line, because the id of the request may be there. */
  #lineTooLong(bytes: number, head: Buffer): void {
    if (this.#closedWith) return;
    this.#end('frame_too_large');
    const id = oversizedHead(head);
    if (id !== 'unnamed') return this.#finishTooLarge(bytes, id === 'none' ? undefined : id);
    this.#reader.onTail((tail) => this.#finishTooLarge(bytes, oversizedTail(tail)));
    this.#waitForExit(lineEndMs, () => this.#finishTooLarge(bytes, undefined));
  }

  #finishTooLarge(bytes: number, id: number | undefined): void {
    if (this.#closedWith) return;
    if (id !== undefined) this.#listener?.tooLarge?.(id, inboundTooLarge(this.#server, bytes));
    this.#finish(bytes);
    void this.#child.stop(FAST_PACE);
  }

  #drain(): void {
    drain(this.#clock, this.#child.stdout, this.#stderrStream, () => this.#finish());
  }

  #waitForExit(waitMs: number, otherwise: () => void): void {
    this.#cancelWait();
    this.#cancelWait = this.#clock.at(this.#clock.nowMs() + waitMs, otherwise);
  }

  /** No frame is sent after this call. */
  #end(ending: ChannelEnd): void {
    if (this.#ending) return;
    this.#ending = ending;
    const { writing, queued } = this.#writer.abandon();
    this.#halfSent = writing;
    this.#fail(queued);
    if (ending !== 'exit' && ending !== 'closed') this.#failHalfSent();
  }

  #endingError(ending: ChannelEnd, lineBytes?: number): HostError {
    const lastLine = this.#stderr.crashLine(stderrLineChars);
    const error = channelEndError(this.#server, ending, this.#child.exit, lastLine, lineBytes);
    return this.#profile === 'standard' && ending === 'exit' ? sandboxedExit(this.#server, error, lastLine) : error;
  }

  #failHalfSent(): void {
    this.#fail(this.#halfSent.splice(0));
  }

  /** Only requests are reported. Hundreds of thousands of answers and notifications may be unread. */
  #fail(frames: OutboundFrame[]): void {
    const ending = this.#ending ?? 'closed';
    // One error per phase, because each one captures a stack trace.
    const errors = new Map<SendPhase, HostError>();
    for (const frame of frames) {
      const { kind, phase } = frame;
      if (kind !== 'request' || phase === 'answered') continue;
      if (this.#closedWith) return;
      const error = errors.get(phase) ?? frameError(this.#server, ending, this.#child.exit, phase);
      errors.set(phase, error);
      this.#listener?.failed(frame, error);
    }
  }

  /** Nothing is reported after this call. */
  #finish(lineBytes?: number): void {
    if (this.#closedWith) return;
    this.#cancelWait();
    this.#failHalfSent();
    // Another process may keep the pipes open, but they must not use descriptors of this process.
    this.#child.stdout.destroy();
    this.#child.onExit(() => {
      this.#stderrStream.destroy();
      this.#stderr.end();
    });
    this.#closedWith = this.#endingError(this.#ending ?? 'closed', lineBytes);
    this.#listener?.closed(this.#closedWith);
    this.#over.resolve();
  }
}

const junkLinesMax = 20;
const noiseWindowMs = 60_000;

/**
 * Detects more than twenty junk lines on stdout within a minute. A few are normal, such as a banner at the start. Many mean
 * that the server writes its log to the wrong stream.
 */
export class NoiseMeter {
  readonly #clock: Clock;
  readonly #timesMs = new Float64Array(junkLinesMax + 1).fill(Number.NEGATIVE_INFINITY);
  #next = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  count(lines: number): void {
    const nowMs = this.#clock.nowMs();
    for (let i = 0; i < Math.min(lines, junkLinesMax + 1); i++) {
      this.#timesMs[this.#next] = nowMs;
      this.#next = (this.#next + 1) % (junkLinesMax + 1);
    }
  }

  get noisy(): boolean {
    return this.#clock.nowMs() - (this.#timesMs[this.#next] as number) <= noiseWindowMs;
  }
}
