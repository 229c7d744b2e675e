/**
 * A host on a fake clock, with a real child server whose behaviour (mood) a test sets and whose log it reads.
 */
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import { createHost, type Host } from '../../src/host/host.js';
import type { HostEvent } from '../../src/host/host-events.js';
import type { HostCallOptions, HostConfig } from '../../src/host/host-interface.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { seededRandom } from '../../src/kernel/random.js';
import { eventually } from '../eventually.js';
import { failureOf } from './harness.js';

export type Mood = 'well' | 'mute' | 'held' | 'dying' | 'stillborn' | 'silent';

const script = fileURLToPath(new URL('../fakes/moody-server.pl', import.meta.url));

export class MoodyHost {
  readonly clock = new FakeClock();
  readonly folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-moody-'));
  /** State directory of the host, if it has one. */
  stateDir: string | undefined;
  readonly problems: unknown[] = [];
  readonly events: HostEvent[] = [];
  host!: Host;

  /** Opens a host with one server named `a`, configured by `more`. The server and its files are removed at the end of the test. */
  static async open(more: Record<string, unknown> = {}, config: HostConfig = {}): Promise<MoodyHost> {
    const moody = MoodyHost.make();
    await moody.start({ mcpServers: { a: moody.entry(more) }, ...config });
    return moody;
  }

  /** Makes the server files without a host. */
  static make(stateDir?: string): MoodyHost {
    const moody = new MoodyHost();
    moody.stateDir = stateDir;
    moody.mood = 'well';
    onTestFinished(() => moody.close());
    return moody;
  }

  async start(config: HostConfig): Promise<Host> {
    this.host = await createHost(config, {
      clock: this.clock,
      random: seededRandom(1),
      ...(this.stateDir === undefined ? {} : { stateDir: this.stateDir }),
      onProblem: (problem) => this.problems.push(problem),
    });
    this.host.on('any', (event) => this.events.push(event));
    return this.host;
  }

  /** `args` follow the name of the script, which ignores them. `env` is extended. */
  entry({
    args = [],
    env = {},
    timeouts = {},
    ...more
  }: {
    args?: readonly string[];
    env?: object;
    timeouts?: object;
    [key: string]: unknown;
  } = {}) {
    return {
      command: 'perl',
      args: [script, ...args],
      env: { FOLDER: this.folder, ...env },
      timeouts: { call: '1s', ...timeouts },
      ...more,
    };
  }

  set mood(mood: Mood) {
    // Replaced atomically, because the server may read it at any time.
    writeFileSync(path.join(this.folder, 'mood.new'), mood);
    renameSync(path.join(this.folder, 'mood.new'), path.join(this.folder, 'mood'));
  }

  /** Lines of the log of the server that begin with this word. */
  log(word: 'start' | 'call' | 'read' | 'cancelled'): string[] {
    const file = path.join(this.folder, 'log');
    const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n') : [];
    return lines.filter((line) => line.split(' ')[0] === word).map((line) => line.slice(word.length + 1));
  }

  get starts(): number {
    return this.log('start').length;
  }

  get calls(): number {
    return this.log('call').length;
  }

  get row() {
    const row = this.host.status().find(({ name }) => name === 'a');
    if (!row) throw new Error('no such server');
    return row;
  }

  call(tool = 'write', args: Record<string, unknown> = {}, options: HostCallOptions = {}) {
    return this.host.call('a', tool, args, options);
  }

  /**
   * Makes calls that are not answered, until `times` in a row have timed out. After each of them the server sends a message. So a
   * test can advance the clock by minutes without a ping, which the child would have no real time to answer.
   */
  async timeOut(times: number, tool = 'write'): Promise<void> {
    this.mood = 'mute';
    for (let i = 0; i < times; i++) {
      const before = this.calls;
      const cancels = this.log('cancelled').length;
      const call = failureOf(this.call(tool, { time: i }));
      await eventually('the call is at the server', () => this.calls > before);
      // In one step, so that the message of the server about the cancelled call arrives after the timeout.
      this.clock.advance(1_010);
      await call;
      await eventually('the server has said so', () => this.log('cancelled').length > cancels);
      await this.clock.advanceAsync(0);
    }
  }

  state(state: string): Promise<unknown> {
    return eventually(`it is ${state}`, () => this.row.state === state);
  }

  /** Advances the clock in small steps, with real time for the process to act, until the server is in this state. */
  async advanceUntil(state: string, stepMs = 500, steps = 1_000): Promise<void> {
    for (let i = 0; i < steps && this.row.state !== state; i++) {
      await this.clock.advanceAsync(stepMs);
      await eventually('it has settled', () => !['connecting', 'closing', 'stopping'].includes(this.row.state));
    }
    await this.state(state);
  }

  async close(): Promise<void> {
    this.mood = 'well';
    await this.host?.close();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
