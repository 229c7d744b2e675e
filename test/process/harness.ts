/**
 * Shared by the process tests: child processes with channels, and lookups in the real process table.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach } from 'vitest';
import { systemClock } from '../../src/kernel/clock.js';
import type { HostError } from '../../src/kernel/errors.js';
import { ChildProcesses } from '../../src/transports/stdio/child-processes.js';
import type { LadderPace } from '../../src/transports/stdio/process-group.js';
import { openStdio, type StdioChannel, type StdioSpec } from '../../src/transports/stdio/stdio-channel.js';
import { type OutboundFrame, requestFrame } from '../../src/wire/channel.js';
import { hasProc, livingNow, realTable } from '../real-table.js';

export const fakes = fileURLToPath(new URL('../fakes', import.meta.url));
export const stubServer = path.join(fakes, 'stdio-server.pl');

/** The sandbox needs Linux with /proc. */
export const profiles: readonly ('group' | 'standard')[] = hasProc ? ['group', 'standard'] : ['group'];

/** Short steps for tests, but long enough that an obedient server never reaches the next step. */
export const shortPace: LadderPace = { eofMs: 400, termMs: 400, settleMs: 50, verifyMs: 2_000 };

/** A channel that records all its reports in order. */
export class Talk {
  readonly messages: string[] = [];
  readonly failed: Array<{ frame: OutboundFrame; error: HostError; atMs: number }> = [];
  readonly closed: Array<{ error: HostError; atMs: number }> = [];
  readonly #answers = new Map<number, () => void>();
  readonly channel: StdioChannel;
  #ids = 0;

  constructor(channel: StdioChannel) {
    this.channel = channel;
    channel.start({
      message: (envelope) => {
        this.messages.push(envelope.bytes.toString('utf8', envelope.payloadStart, envelope.payloadEnd));
        this.#answers.get(envelope.numericId())?.();
      },
      failed: (frame, error) => this.failed.push({ frame, error, atMs: performance.now() }),
      closed: (error) => this.closed.push({ error, atMs: performance.now() }),
    });
  }

  send(payload: string | Uint8Array = '{}'): {
    frame: OutboundFrame;
    refused: HostError | undefined;
    answered: Promise<void>;
  } {
    const id = ++this.#ids;
    const answered = new Promise<void>((resolve) => {
      this.#answers.set(id, resolve);
    });
    const frame = requestFrame(id, 'tools/call', payload, undefined);
    return { frame, refused: this.channel.send(frame), answered };
  }

  async whenClosed(): Promise<HostError> {
    await until(() => this.closed.length > 0, 'the channel is closed');
    return (this.closed[0] as { error: HostError }).error;
  }
}

export interface Bench {
  readonly keeper: ChildProcesses;
  readonly stateDir: string;
  open(spec?: Partial<StdioSpec>): Promise<Talk>;
  /** Opens a channel to the stub server with these flags. */
  stub(...flags: string[]): Promise<Talk>;
  stubWith(spec: Partial<StdioSpec>, ...flags: string[]): Promise<Talk>;
}

/**
 * Gives each test of the file a new ChildProcesses, closes it after the test, and checks that no process with its marker is left.
 */
export function useBench(): Bench {
  const bench = {} as { -readonly [Key in keyof Bench]: Bench[Key] };
  beforeEach(() => {
    bench.stateDir = mkdtempSync(path.join(tmpdir(), 'hostler-process-'));
    bench.keeper = new ChildProcesses({ clock: systemClock, stateDir: bench.stateDir, ambient: process.env });
  });
  afterEach(async () => {
    await bench.keeper.closeAll();
    rmSync(bench.stateDir, { recursive: true, force: true });
    const left = carriers(bench.keeper.instanceId);
    for (const pid of left) process.kill(pid, 'SIGKILL');
    if (left.length > 0) throw new Error(`left behind: ${left.join(' ')}`);
  });
  bench.open = async (spec = {}) => {
    const full = { server: 'stub', command: 'perl', stopPace: shortPace, cwd: fakes, ...spec };
    return new Talk(await openStdio(full, { clock: systemClock, cleanText: (text) => text, children: bench.keeper }));
  };
  bench.stub = (...flags) => bench.open({ args: [stubServer, ...flags] });
  bench.stubWith = (spec, ...flags) => bench.open({ args: [stubServer, ...flags], ...spec });
  return bench;
}

/** Living processes of all runs of this instance. */
export const carriers = (instanceId: string): number[] =>
  livingNow()
    .map(({ pid }) => pid)
    .filter((pid) => realTable.mark(pid)?.startsWith(`${instanceId}.`));

export async function until(condition: () => boolean, what: string, withinMs = 30_000): Promise<void> {
  const untilMs = performance.now() + withinMs;
  while (!condition()) {
    if (performance.now() > untilMs) throw new Error(`waited ${withinMs} ms without success until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
