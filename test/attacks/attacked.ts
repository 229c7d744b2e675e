/**
 * A `hostler up` to attack: the built program in a separate process, servers that record everything they receive, and three kinds
 * of keys. Tests choose all headers of their requests.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { type Ready, type Running, Workplace } from '../cli/hostler-process.js';

const script = fileURLToPath(new URL('../fakes/recording-server.mjs', import.meta.url));

export type Headers = Readonly<Record<string, string>>;
export type Json = Record<string, unknown>;

export const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': { elicitation: {} },
};
export const LOW_KEY = 'low-key-for-tests-0123456789abcdef';
export const OTHER_KEY = 'other-key-for-tests-0123456789abcdef';
const hashed = (key: string): string => `sha256:${createHash('sha256').update(key).digest('hex')}`;

/** `low` may call one tool of one server. `other` may do everything, but is not the operator. */
export const keysAndRoles = {
  keys: {
    low: { hash: hashed(LOW_KEY), role: 'low' },
    other: { hash: hashed(OTHER_KEY), role: 'all' },
  },
  roles: { low: { allow: ['open/echo'] }, all: { allow: ['*/*'] } },
};

export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
}

export interface Sending {
  readonly method?: string;
  readonly path?: string;
  /** Undefined: without a key. */
  readonly key?: string | undefined;
  readonly headers?: Headers;
  readonly body?: string;
}

export class Attacked {
  readonly place = new Workplace();
  readonly agent = new Agent({ keepAlive: true, maxSockets: 16 });
  readonly #upstreams: ChildProcess[] = [];
  running!: Running;
  ready!: Ready;

  get port(): number {
    return Number(new URL(this.ready.url).port);
  }

  recordOf(name: string): string {
    return path.join(this.place.folder, `${name}.bytes`);
  }

  received(name: string): string {
    const file = this.recordOf(name);
    return existsSync(file) ? readFileSync(file, 'latin1') : '';
  }

  /** Number of bytes received, once the record no longer grows: a server may answer before its record is on disk. */
  async receivedBytes(name: string): Promise<number> {
    for (let before = -1; ; ) {
      const { length } = this.received(name);
      if (length === before) return length;
      before = length;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }

  stdioServer(name: string, era: 'legacy' | 'modern', env: Headers = {}): Json {
    return { command: process.execPath, args: [script], env: { RECORD: this.recordOf(name), ERA: era, ...env } };
  }

  /** A server that hostler did not start. It ends with this object. */
  async httpServer(name: string, era: 'legacy' | 'modern', env: Headers = {}): Promise<Json> {
    const child = spawn(process.execPath, [script], {
      env: { ...process.env, RECORD: this.recordOf(name), ERA: era, HTTP: '1', ...env },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#upstreams.push(child);
    const [line] = await once(createInterface(child.stdout), 'line');
    return { url: `http://127.0.0.1:${line}/mcp` };
  }

  async up(config: Json, ...args: string[]): Promise<void> {
    this.place.configure(config);
    this.running = this.place.up(...args);
    this.ready = await this.running.ready();
  }

  send(sending: Sending = {}): Promise<Reply> {
    const { method = 'POST', body } = sending;
    const headers: Record<string, string> = { accept: 'application/json, text/event-stream' };
    if (body !== undefined) {
      headers['content-type'] = 'application/json';
      headers['content-length'] = String(Buffer.byteLength(body));
    }
    if (sending.key !== undefined) headers.authorization = `Bearer ${sending.key}`;
    Object.assign(headers, sending.headers);
    return new Promise((resolve, reject) => {
      const sent = request(
        { host: '127.0.0.1', port: this.port, method, path: sending.path ?? '/mcp', headers, agent: this.agent },
        (response) => {
          let text = '';
          response.setEncoding('utf8');
          response.on('data', (chunk: string) => {
            text += chunk;
          });
          response.on('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }));
          response.on('error', reject);
        },
      );
      sent.on('error', reject);
      sent.end(body);
    });
  }

  /** Sends one modern request with its required headers. */
  modern(method: string, params: Json, sending: Sending, id: unknown = 1): Promise<Reply> {
    const name = params.name ?? params.uri;
    const body = JSON.stringify({
      jsonrpc: '2.0',
      id,
      method,
      params: { ...params, _meta: { ...META, ...meta(params) } },
    });
    const headers = {
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': method,
      ...(typeof name === 'string' && { 'mcp-name': name }),
      ...sending.headers,
    };
    return this.send({ ...sending, body, headers });
  }

  legacy(method: string, params: Json | undefined, sending: Sending, id: unknown = 1): Promise<Reply> {
    return this.send({ ...sending, body: JSON.stringify({ jsonrpc: '2.0', id, method, params }) });
  }

  /** Opens a session and returns its headers. */
  async session(sending: Sending, version = '2025-11-25'): Promise<Record<string, string>> {
    const params = { protocolVersion: version, capabilities: {}, clientInfo: { name: 'a', version: '1' } };
    const reply = await this.legacy('initialize', params, sending, 'init');
    const id = reply.headers['mcp-session-id'];
    if (typeof id !== 'string') throw new Error(`no session: ${reply.status} ${reply.text}`);
    const headers = { 'mcp-session-id': id, 'mcp-protocol-version': version };
    const body = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' });
    await this.send({ ...sending, headers: { ...sending.headers, ...headers }, body });
    return headers;
  }

  async remove(): Promise<void> {
    this.agent.destroy();
    for (const child of this.#upstreams) {
      child.stdin?.end();
      await once(child, 'close');
    }
    await this.place.remove();
  }
}

const meta = (params: Json): Json => (params._meta as Json | undefined) ?? {};

/** The message of an answer, whether it came as JSON or as the last event of a stream. */
export function messageOf({ text }: Reply): {
  result?: Json;
  error?: { code: number; message: string; data?: unknown };
} {
  if (!text.startsWith('{')) {
    const data = text.split('\n').filter((line) => line.startsWith('data: {'));
    return JSON.parse(data.at(-1)?.slice('data: '.length) ?? '{}');
  }
  return JSON.parse(text);
}
