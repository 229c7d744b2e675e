/**
 * A gateway for tests with bombs (bombs.ts), in a separate process that measures itself (watched.ts). Its servers list what the
 * test says, and an HTTP listener counts every attempt to fetch a URL.
 */
import { writeFileSync } from 'node:fs';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { expect } from 'vitest';
import { Attacked } from './attacked.js';
import { WatchedGateway } from './watched.js';

const harmless = '{"tools":[{"name":"t0","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}';
const usualMeta =
  '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}';

/** The outcome of a list, and the time since the server was asked for it. */
export interface Listed {
  readonly outcome: number | string;
  readonly tookMs: number;
}

export class Bombed {
  readonly gateway = new WatchedGateway();
  readonly #upstreams = new Attacked();
  readonly #listFile = path.join(this.gateway.folder, 'tools.json');
  #canary!: Server;
  /** Number of fetched URLs that a text named. */
  fetched = 0;

  get canaryUrl(): string {
    return `http://127.0.0.1:${(this.#canary.address() as AddressInfo).port}`;
  }

  async start(): Promise<void> {
    this.#canary = createServer((_request, response) => {
      this.fetched++;
      response.end('{}');
    });
    await new Promise<void>((resolve) => this.#canary.listen(0, '127.0.0.1', resolve));
    writeFileSync(this.#listFile, harmless);
    const upstreams = this.#upstreams;
    const TOOLS = this.#listFile;
    await this.gateway.start({
      good: upstreams.stdioServer('good', 'modern'),
      pipe: upstreams.stdioServer('pipe', 'legacy', { TOOLS }),
      web: await upstreams.httpServer('web', 'modern', { TOOLS }),
    });
    for (let i = 0; i < 20; i++) await this.echo('x');
    for (const server of ['pipe', 'web']) expect(await this.gateway.list(server)).toBe(1);
  }

  async remove(): Promise<void> {
    await this.gateway.remove();
    await this.#upstreams.remove();
    this.#canary.close();
  }

  /** `_META` in the params is replaced by the metadata that every request carries. */
  post(method: string, name: string, params: string): Promise<{ status: number; text: string }> {
    const body = `{"jsonrpc":"2.0","id":1,"method":"${method}","params":${params.replace('_META', usualMeta)}}`;
    const headers = {
      ...{ 'content-type': 'application/json', 'mcp-protocol-version': '2026-07-28', 'mcp-method': method },
      ...(name === '' ? {} : { 'mcp-name': name }),
    };
    const target = { host: '127.0.0.1', port: this.gateway.port, path: '/mcp', method: 'POST', headers };
    return new Promise((resolve, reject) => {
      const sent = request(target, (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
        });
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
      });
      sent.on('error', reject);
      sent.end(body);
    });
  }

  echo(text: string): Promise<{ status: number; text: string }> {
    return this.post('tools/call', 'good__echo', `{"name":"good__echo","arguments":{"text":"${text}"},_META}`);
  }

  /** Reads the list, shows it and calls one of its tools. Then reads a small list instead, so that each try costs the same. */
  async listOnce(server: string, text: string): Promise<Listed> {
    writeFileSync(this.#listFile, text);
    const listed = await this.gateway.listed(server);
    expect((await this.post('tools/list', '', '{_META}')).status).toBe(200);
    const args = `{"text":"${'a'.repeat(1_000)}!"}`;
    await this.post('tools/call', `${server}__t0`, `{"name":"${server}__t0","arguments":${args},_META}`);
    writeFileSync(this.#listFile, harmless);
    expect(await this.gateway.list(server)).toBe(1);
    return listed;
  }

  /** A file in the folder of the gateway. */
  get scratchFile(): string {
    return path.join(this.gateway.folder, 'kept.json');
  }
}

/** The reported problems that should not have occurred. */
export const faults = (problems: readonly string[]): string[] =>
  problems.filter((problem) => /internal|TypeError|RangeError/.test(problem));
