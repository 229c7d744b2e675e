/**
 * A host with real child servers whose lists a test changes, and a ledger of the requests to each of them.
 */
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import { createHost, type Host } from '../../src/host/host.js';
import type { HostConfig, HostOptions } from '../../src/host/host-interface.js';
import type { ListMethod } from '../../src/session/lists.js';

const script = fileURLToPath(new URL('../fakes/listed-server.mjs', import.meta.url));

export type Era = 'legacy' | 'modern';

export interface Listed {
  readonly tools: readonly { readonly name: string; readonly description?: string; readonly annotations?: object }[];
  readonly prompts: readonly { readonly name: string }[];
  readonly resources: readonly { readonly uri: string; readonly name: string }[];
  readonly templates: readonly { readonly uriTemplate: string; readonly name: string }[];
}

const own = ['say', 'end', 'exit', 'sleep'].map((name) => ({ name, inputSchema: { type: 'object' } }));

export class ListedHost {
  readonly folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-listed-'));
  readonly problems: unknown[] = [];
  readonly told: string[] = [];
  host!: Host;

  static make(): ListedHost {
    const listed = new ListedHost();
    onTestFinished(async () => {
      await listed.host?.close();
      rmSync(listed.folder, { recursive: true, force: true });
    });
    return listed;
  }

  /** Opens a host with one server named `a`. */
  static async open(era: Era, more: Record<string, unknown> = {}): Promise<ListedHost> {
    const listed = ListedHost.make();
    await listed.start({ mcpServers: { a: listed.entry('a', era, more) } });
    return listed;
  }

  async start(config: HostConfig, options: HostOptions = {}): Promise<Host> {
    await this.host?.close();
    const stateDir = path.join(this.folder, 'state');
    this.host = await createHost(config, { stateDir, onProblem: (error) => this.problems.push(error), ...options });
    this.host.onKnownChanged((server) => this.told.push(server));
    return this.host;
  }

  entry(name: string, era: Era, { env = {}, ...more }: { env?: object; [key: string]: unknown } = {}) {
    if (!existsSync(this.#file(name, 'json'))) this.list(name, {});
    return {
      command: process.execPath,
      args: [script],
      env: { ERA: era, LEDGER: this.#file(name, 'ledger'), STATE: this.#file(name, 'json'), ...env },
      ...more,
    };
  }

  /** Changes the lists of a server. */
  list(name: string, { tools = [], ...listed }: Partial<Listed>): void {
    const lists = { prompts: [], resources: [], templates: [], ...listed, tools: [...tools, ...own] };
    const file = this.#file(name, 'json');
    // Replaced atomically, because the server may be reading it.
    writeFileSync(`${file}.new`, JSON.stringify(lists));
    renameSync(`${file}.new`, file);
  }

  say(method: string, params: object = {}): Promise<unknown> {
    return this.host.call('a', 'say', { method: `notifications/${method}`, params });
  }

  /** Requests to the server about this subject. */
  asked(about: string, name = 'a'): string[] {
    const file = this.#file(name, 'ledger');
    const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n') : [];
    return lines.filter((line) => line.split(' ')[0] === about);
  }

  keys(method: ListMethod, name = 'a'): string[] | undefined {
    const list = this.host.known(name)?.lists.get(method);
    return list?.items.map(({ key }) => key).filter((key) => !own.some((tool) => tool.name === key));
  }

  #file(name: string, ending: string): string {
    return path.join(this.folder, `${name}.${ending}`);
  }
}
