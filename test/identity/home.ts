/** A user with a separate home directory, in which `hostler` commands run. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const command = path.resolve('dist/cli/main.cjs');

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export class Home {
  readonly folder = mkdtempSync(path.join(tmpdir(), 'hostler-home-'));
  readonly config = path.join(this.folder, 'hostler.json');
  /** Further variables of the commands. */
  readonly env: Record<string, string> = {};
  readonly #running = new Set<{ readonly child: ChildProcess; readonly ended: Promise<Ended> }>();

  write(config: unknown): void {
    writeFileSync(this.config, JSON.stringify(config));
  }

  putOwnConfig(config: unknown): void {
    const folder = path.join(this.folder, '.config', 'hostler');
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, 'hostler.json'), typeof config === 'string' ? config : JSON.stringify(config));
  }

  put(name: string, text: string): void {
    writeFileSync(path.join(this.folder, name), text, { mode: 0o600 });
  }

  /** Starts a command on a pseudo terminal. All output is in `stdout`. */
  startOnTerminal(args: readonly string[]) {
    const line = [process.execPath, command, ...args].map((each) => `'${each}'`).join(' ');
    return this.start(['-qec', line, '/dev/null'], undefined, 'script');
  }

  start(
    args: readonly string[],
    onOutput: (text: string, child: ChildProcess) => void = () => {},
    program = process.execPath,
  ) {
    const own = { PATH: process.env.PATH, HOME: this.folder, HOSTLER_DATA_DIR: path.join(this.folder, 'data') };
    const env = { ...own, ...this.env };
    const child = spawn(program, program === process.execPath ? [command, ...args] : args, {
      env,
      cwd: this.folder,
      stdio: 'pipe',
    });
    let [stdout, stderr] = ['', ''];
    child.stdout.on('data', (chunk: Buffer) => {
      stdout += chunk.toString();
      onOutput(stdout + stderr, child);
    });
    child.stderr.on('data', (chunk: Buffer) => {
      stderr += chunk.toString();
      onOutput(stdout + stderr, child);
    });
    const ended = new Promise<Ended>((resolve) => child.once('close', (code) => resolve({ code, stdout, stderr })));
    const running = { child, ended, output: () => stdout + stderr };
    this.#running.add(running);
    void ended.then(() => this.#running.delete(running));
    return running;
  }

  run(...args: string[]): Promise<Ended> {
    const started = this.start(args);
    started.child.stdin?.end();
    return started.ended;
  }

  /** Runs `login` and passes its URL to `person` once. */
  login(args: readonly string[], person: (url: string, child: ChildProcess) => unknown): Promise<Ended> {
    let isDone = false;
    return this.start(['login', ...args, '--config', this.config], (text, child) => {
      const [url] = /http:\/\/127\.0\.0\.1:\d+\/authorize\?[^\s"]+/.exec(text) ?? [];
      if (isDone || url === undefined) return;
      isDone = true;
      void person(url, child);
    }).ended;
  }

  async end(): Promise<void> {
    for (const { child, ended } of [...this.#running]) {
      child.kill('SIGTERM');
      await ended;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}
