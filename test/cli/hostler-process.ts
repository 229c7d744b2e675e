/** Runs `hostler` as processes: `up`, and the commands that connect to it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { eventually } from '../eventually.js';
import { stdioFixtures } from '../fixtures/fixture-servers.js';

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Ready {
  readonly ready: boolean;
  readonly url: string;
  readonly key: string;
  readonly pid: number;
  readonly dataDir: string;
}

export class Running {
  readonly child: ChildProcess;
  stdout = '';
  stderr = '';
  readonly closed: Promise<Ended>;

  constructor(
    args: readonly string[],
    env: Readonly<Record<string, string>> = {},
    cwd = process.cwd(),
    node = process.execPath,
  ) {
    const all = { ...process.env, XDG_CONFIG_HOME: '/nowhere', ...env };
    this.child = spawn(node, [main, ...args], { env: all, cwd, stdio: 'pipe' });
    this.child.stdout?.on('data', (chunk) => (this.stdout += chunk));
    this.child.stderr?.on('data', (chunk) => (this.stderr += chunk));
    this.closed = once(this.child, 'close').then(([code]) => {
      const { stdout, stderr } = this;
      return { code: code as number | null, stdout, stderr };
    });
  }

  async ready(): Promise<Ready> {
    const line = await eventually('the line that says it serves', () => {
      if (this.child.exitCode !== null) throw new Error(this.stderr);
      return this.stdout.includes('\n') && this.stdout;
    });
    return JSON.parse(line) as Ready;
  }
}

/** A temporary folder for all files of a test, which is removed at the end. `node`: the binary that runs Hostler. */
export class Workplace {
  readonly #node: string;
  readonly folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-up-'));
  readonly dataDir = path.join(this.folder, 'data');
  readonly config = path.join(this.folder, 'hostler.json');
  readonly running: Running[] = [];

  constructor(node = process.execPath) {
    this.#node = node;
  }

  #run(args: readonly string[]): Running {
    return new Running(args, {}, process.cwd(), this.#node);
  }

  configure(config: unknown): void {
    writeFileSync(this.config, typeof config === 'string' ? config : JSON.stringify(config));
  }

  up(...args: string[]): Running {
    const running = this.#run([
      'up',
      '--config',
      this.config,
      '--data-dir',
      this.dataDir,
      '--json',
      '--show-key',
      '--port=0',
      ...args,
    ]);
    this.running.push(running);
    return running;
  }

  async hostler(command: string, ...args: string[]): Promise<Ended> {
    const running = this.#run([command, '--data-dir', this.dataDir, ...args]);
    running.child.stdin?.end();
    return running.closed;
  }

  follow(command: string, ...args: string[]): Running {
    const running = this.#run([command, '--data-dir', this.dataDir, ...args]);
    this.running.push(running);
    return running;
  }

  async remove(): Promise<void> {
    for (const { child, closed } of this.running) {
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM');
      await closed;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}

export function fixtureEntry(name = 'sdk2-stdio-modern'): Record<string, unknown> {
  const found = stdioFixtures.find((fixture) => fixture.name === name);
  if (!found) throw new Error(name);
  return { command: found.command, args: found.args, env: found.env };
}
