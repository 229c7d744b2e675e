/**
 * Follows docs/broker.md: writes its configurations, runs its commands in a shell in the order of the page, and starts its clients. Only
 * the ports differ, and the packages that npx would fetch.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { brokerLimits } from '../../src/broker/protocol/limits.js';
import { connect } from '../../src/broker/worker/index.js';
import { eventually } from '../eventually.js';
import { freePort } from '../fakes/free-port.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const page = readFileSync(path.join(root, 'docs/broker.md'), 'utf8');
const chapterOf = (title: string): string => page.split('\n## ').find((part) => part.startsWith(title)) ?? '';
const memory = path.join(root, 'node_modules/@modelcontextprotocol/server-memory/dist/index.js');

/** A folder in which the chapter is followed. */
class Chapter {
  readonly folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-guide-'));
  readonly #background: { child: ChildProcess; said: () => string }[] = [];
  readonly #env: NodeJS.ProcessEnv;
  readonly blocks: { kind: string; text: string }[];

  constructor(text: string, port: (written: string) => string) {
    const bin = path.join(this.folder, 'bin');
    mkdirSync(bin);
    // Takes the place of the installed command `hostler`.
    writeFileSync(path.join(bin, 'hostler'), `#!/bin/sh\nexec "${process.execPath}" "${root}dist/cli/main.js" "$@"\n`);
    chmodSync(path.join(bin, 'hostler'), 0o755);
    this.#env = {
      ...process.env,
      PATH: `${bin}:${process.env.PATH}`,
      HOSTLER_DATA_DIR: path.join(this.folder, 'data'),
    };
    this.blocks = [...text.matchAll(/```(json|console|ts)\n([\s\S]*?)```/g)].map(([, kind = '', block = '']) => ({
      kind,
      text: port(block).replace('"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]', memoryEntry),
    }));
  }

  configure(text: string): void {
    writeFileSync(path.join(this.folder, 'hostler.json'), text);
  }

  /** Names of the tools that each `hostler worker` of the page lists. */
  readonly listed: string[][] = [];

  /** Runs the commands of a block. If the page shows output of a command, the command must print exactly that. */
  async run(block: string): Promise<void> {
    const { folder: cwd } = this;
    for (const [, command = '', printed = ''] of block.matchAll(/^\$ (.+)\n((?:(?!\$ ).+\n)*)/gm)) {
      if (command.endsWith('&')) await this.#begin(command);
      else if (command.includes('hostler worker')) await this.#list(command);
      else {
        const { stdout } = await promisify(execFile)('sh', ['-ec', command], { cwd, env: this.#env });
        if (printed !== '') expect(stdout).toBe(printed);
      }
    }
  }

  async #begin(command: string): Promise<void> {
    const words = command.replace(/ *&$/, '').replace(/^hostler up --config \S+$/, '$& --port 0');
    const child = spawn('sh', ['-c', `exec ${words}`], {
      cwd: this.folder,
      env: this.#env,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let text = '';
    child.stderr?.on('data', (chunk) => (text += chunk));
    this.#background.push({ child, said: () => text });
    await eventually(`${words} serves`, () => {
      if (child.exitCode !== null) throw new Error(text);
      return /serves|Server is ready/.test(text);
    });
  }

  /** `hostler worker` is an MCP server over stdio: a client takes the place of the terminal. */
  async #list(command: string): Promise<void> {
    const client = await this.client('sh', ['-c', command]);
    this.listed.push((await client.listTools()).tools.map(({ name }) => name));
    await client.close();
  }

  async client(command: string, args: readonly string[]): Promise<Client> {
    const client = new Client({ name: 'guide', version: '1' });
    const env = this.#env as Record<string, string>;
    await client.connect(
      new StdioClientTransport({ command, args: [...args], env, cwd: this.folder, stderr: 'ignore' }),
    );
    return client;
  }

  /** Runs the text as a program. */
  async program(text: string): Promise<string> {
    const file = path.join(this.folder, 'program.mjs');
    writeFileSync(file, text.replace("'hostler/worker'", `'${root}dist/broker/worker/index.js'`));
    const { stdout } = await promisify(execFile)(process.execPath, [file], { cwd: this.folder });
    return stdout;
  }

  block(kind: string, at: number): string {
    return this.blocks.filter((each) => each.kind === kind)[at]?.text ?? '';
  }

  async remove(): Promise<void> {
    for (const { child } of this.#background.reverse()) {
      const gone = once(child, 'exit');
      if (child.exitCode === null && child.kill('SIGTERM')) await gone;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}
const memoryEntry = `"command": ${JSON.stringify(process.execPath)}, "args": [${JSON.stringify(memory)}]`;

describe('a worker in four commands', () => {
  let chapter: Chapter;
  beforeAll(async () => {
    const port = String(await freePort());
    chapter = new Chapter(chapterOf('A worker in four commands'), (text) =>
      text.replaceAll('8384', port).replace('"broker": {}', `"broker": {"listen": {"port": ${port}}}`),
    );
    await chapter.run(chapter.block('console', 0));
  }, 60_000);
  afterAll(() => chapter.remove());

  test('the fourth command is a worker with the tools of its role', () => {
    expect(chapter.block('console', 0).match(/^\$ /gm)).toHaveLength(4);
    expect(chapter.listed).toEqual([['memory__read_graph']]);
  });

  test('a client that starts the worker sees the tools of its role', async () => {
    const { mcpServers } = JSON.parse(chapter.block('json', 0)) as {
      mcpServers: { team: { command: string; args: string[] } };
    };
    const { command, args } = mcpServers.team;
    const client = await chapter.client(command, args);
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual(['memory__read_graph']);
    await client.close();
  });

  test('the program prints the graph', async () => {
    expect(await chapter.program(chapter.block('ts', 0))).toContain('entities');
  });

  test('a key is replaced without a gap, and the old one is refused', async () => {
    const address = /ws:\/\/[^"]+/.exec(chapter.block('json', 0))?.[0] ?? '';
    const old = await connect({ broker: address, keyFile: path.join(chapter.folder, 'ann.key') });
    await chapter.run(chapter.block('console', 1));
    await eventually('the old key is refused', () => old.status().state === 'refused');
    const now = await connect({ broker: address, keyFile: path.join(chapter.folder, 'ann-2.key') });
    expect(now.list()).toHaveLength(1);
    await Promise.all([old.close(), now.close()]);
  });
});

test('beyond this machine: a worker connects over TLS by a name of the certificate', async () => {
  const port = String(await freePort());
  const chapter = new Chapter(chapterOf('Beyond this machine'), (text) =>
    text.replaceAll('8384', port).replace('"host": "0.0.0.0"', `"host": "0.0.0.0", "port": ${port}`),
  );
  try {
    chapter.configure(chapter.block('json', 0));
    await chapter.run(chapter.block('console', 0));
    expect(chapter.listed).toEqual([['memory__read_graph']]);
  } finally {
    await chapter.remove();
  }
}, 60_000);

describe('three hosts and ten workers on NATS', () => {
  const onNats = chapterOf('Several hosts: NATS');
  let chapter: Chapter;
  let port: string;
  beforeAll(async () => {
    port = String(await freePort());
    chapter = new Chapter(onNats, (text) => text.replaceAll('4222', port));
    chapter.configure(chapter.block('json', 0));
    await chapter.run(chapter.block('console', 0));
    await chapter.run(chapter.block('console', 1));
  }, 120_000);
  afterAll(() => chapter.remove());

  test('ten workers that are programs are served, and one that is a command', async () => {
    const workers = await Promise.all(
      Array.from({ length: 10 }, (_, at) =>
        connect({
          broker: `nats://127.0.0.1:${port}/worker-${at}`,
          keyFile: path.join(chapter.folder, `worker-${at}.key`),
        }),
      ),
    );
    const results = await Promise.all(
      workers.map((each) => each.execute('memory', 'read_graph', {}, { deadlineMs: 20_000 })),
    );
    expect(results.map(({ isError }) => isError)).toEqual(Array(10).fill(false));
    await Promise.all(workers.map((each) => each.close()));
    const [, words = ''] = /`hostler (worker [^`]+)`/.exec(onNats) ?? [];
    const client = await chapter.client('hostler', words.replaceAll('4222', port).split(' '));
    expect((await client.listTools()).tools.length).toBeGreaterThan(5);
    await client.close();
  }, 60_000);

  test('the key of one worker does not open the address of another worker', async () => {
    const wrong = connect({
      broker: `nats://127.0.0.1:${port}/worker-1`,
      keyFile: path.join(chapter.folder, 'worker-0.key'),
      connectMs: 2_000,
    });
    await expect(wrong).rejects.toThrow();
  });
});

test('the page names the default port', async () => {
  const { brokerPortDefault } = await import('../../src/config/broker-settings.js');
  expect(chapterOf('A worker in four commands')).toContain(`127.0.0.1:${brokerPortDefault}/broker`);
});

test('the page names the limits of the code', () => {
  const limits = chapterOf('Limits');
  const MiB = 1024 * 1024;
  for (const text of [
    `at most ${brokerLimits.deadlineMs / 60_000} min`,
    `| ${brokerLimits.callsPerWorker} whose reply the worker has not received`,
    `| ${brokerLimits.replyBytesPerWorker / MiB} MiB; ${brokerLimits.replyBytesInAll / MiB} MiB in the log`,
    `| ${brokerLimits.messageBytes / MiB} MiB`,
    `at most ${brokerLimits.callersKeys.toLocaleString('en')}`,
    `removed ${brokerLimits.unackedMs / 60_000} min after`,
  ])
    expect(limits).toContain(text);
});
