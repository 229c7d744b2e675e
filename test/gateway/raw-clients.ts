/**
 * Hand-written MCP clients of both eras over node:http. They choose their request ids and record every message from any stream. Not
 * here: their requests, and judging the answers (cross-clients.ts).
 *
 * Invariant: every message is passed to `heard` exactly once, before it resolves a waiting call.
 */
import { Agent, type ClientRequest, type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';

export type Json = Record<string, unknown>;

export interface Message {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: Json;
  readonly result?: Json;
  readonly error?: { readonly code: number; readonly message: string };
}

/** `asked`: the request whose response stream carried the message; undefined for a stream without a request. */
export type Heard = (message: Message, asked: number | undefined) => void;

export interface RawClient {
  /** Undefined: the connection ended without an answer, from either side. */
  call(id: number, name: string, args: Json, cut?: { afterMs: number }): Promise<Message | undefined>;
  /** Subscribes to updates of a resource until the client is closed. Resolves when the server has accepted. */
  watch(uri: string): Promise<void>;
  /** Drops all connections and connects again (legacy: ends the old session and opens a new one, because sessions are limited). */
  reconnect(): Promise<void>;
  close(): Promise<void>;
}

const modernVersion = '2026-07-28';
const legacyVersion = '2025-11-25';
const info = { name: 'raw-client', version: '1.0.0' };
const accept = 'application/json, text/event-stream';

class Wire {
  readonly #url: URL;
  readonly #heard: Heard;
  #agent = new Agent({ keepAlive: true });
  readonly #open = new Set<ClientRequest>();

  constructor(url: string, heard: Heard) {
    this.#url = new URL(url);
    this.#heard = heard;
  }

  /** Resolves with the headers. Messages are passed to `heard` as they arrive; then `ended` resolves with all of them. */
  send(
    method: string,
    headers: Record<string, string>,
    body: Json | undefined,
    asked: number | undefined,
  ): { request: ClientRequest; head: Promise<IncomingHttpHeaders | undefined>; ended: Promise<Message[]> } {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const sent = request(this.#url, { method, agent: this.#agent, headers: { accept, ...headers } });
    this.#open.add(sent);
    let onHead: (headers: IncomingHttpHeaders | undefined) => void = () => {};
    const head = new Promise<IncomingHttpHeaders | undefined>((resolve) => {
      onHead = resolve;
    });
    const ended = new Promise<Message[]>((resolve) => {
      const messages: Message[] = [];
      const take = (json: string): void => {
        if (json.trim() === '') return;
        const message = JSON.parse(json) as Message;
        messages.push(message);
        this.#heard(message, asked);
      };
      const finish = (): void => {
        this.#open.delete(sent);
        onHead(undefined);
        resolve(messages);
      };
      sent.once('response', (response) => {
        onHead({ ...response.headers, ':status': String(response.statusCode) });
        readMessages(response, take, finish);
      });
      sent.once('error', finish);
      sent.once('close', finish);
    });
    sent.end(text);
    return { request: sent, head, ended };
  }

  drop(): void {
    for (const each of this.#open) each.destroy();
    this.#agent.destroy();
    this.#agent = new Agent({ keepAlive: true });
  }
}

/** Reads JSON or an event stream. An incomplete message is ignored. */
function readMessages(response: IncomingMessage, take: (json: string) => void, finish: () => void): void {
  const isStream = String(response.headers['content-type']).startsWith('text/event-stream');
  let rest = '';
  response.setEncoding('utf8');
  response.on('data', (chunk: string) => {
    rest += chunk;
    if (!isStream) return;
    const events = rest.split('\n\n');
    rest = events.pop() ?? '';
    for (const event of events) {
      const data = event.split('\n').filter((line) => line.startsWith('data:'));
      take(data.map((line) => line.slice('data:'.length).trimStart()).join('\n'));
    }
  });
  response.once('end', () => {
    if (!isStream) take(rest);
    finish();
  });
  response.once('close', finish);
  response.on('error', finish);
}

/** Cancels the cut when the answer arrives. Returns the answer of `id`, if it came. */
async function answerOf(
  sent: { request: ClientRequest; ended: Promise<Message[]> },
  id: number,
  cut: { afterMs: number } | undefined,
): Promise<Message | undefined> {
  const timer = cut && setTimeout(() => sent.request.destroy(), cut.afterMs);
  const messages = await sent.ended;
  clearTimeout(timer);
  return messages.find((message) => message.id === id && message.method === undefined);
}

export function modernClient(url: string, heard: Heard): RawClient {
  const wire = new Wire(url, heard);
  const meta = {
    'io.modelcontextprotocol/protocolVersion': modernVersion,
    'io.modelcontextprotocol/clientInfo': info,
    'io.modelcontextprotocol/clientCapabilities': {},
  };
  const post = (
    id: number,
    method: string,
    params: Json,
    more: Json,
    name?: string,
    asked: number | undefined = id,
  ) => {
    const headers = {
      'content-type': 'application/json',
      'mcp-protocol-version': modernVersion,
      'mcp-method': method,
      ...(name !== undefined && { 'mcp-name': name }),
    };
    return wire.send(
      'POST',
      headers,
      { jsonrpc: '2.0', id, method, params: { ...params, _meta: { ...meta, ...more } } },
      asked,
    );
  };
  let watched: string | undefined;
  const watch = async (uri: string): Promise<void> => {
    watched = uri;
    await post(0, 'subscriptions/listen', { notifications: { resourceSubscriptions: [uri] } }, {}, undefined, undefined)
      .head;
  };
  return {
    call: (id, name, args, cut) =>
      answerOf(post(id, 'tools/call', { name, arguments: args }, { progressToken: id }, name), id, cut),
    watch,
    reconnect: async () => {
      wire.drop();
      if (watched !== undefined) await watch(watched);
    },
    close: async () => wire.drop(),
  };
}

export async function legacyClient(url: string, heard: Heard): Promise<RawClient> {
  const wire = new Wire(url, heard);
  let session = '';
  const headers = (): Record<string, string> => ({
    'content-type': 'application/json',
    'mcp-protocol-version': legacyVersion,
    ...(session !== '' && { 'mcp-session-id': session }),
  });
  const post = (message: Json, asked: number | undefined) =>
    wire.send('POST', headers(), { jsonrpc: '2.0', ...message }, asked);
  const open = async (): Promise<void> => {
    session = '';
    const params = { protocolVersion: legacyVersion, capabilities: {}, clientInfo: info };
    // The same id as that of its first call.
    const sent = post({ id: 1, method: 'initialize', params }, 1);
    const given = (await sent.head)?.['mcp-session-id'];
    await sent.ended;
    if (typeof given !== 'string') throw new Error('initialize gave no session');
    session = given;
    await post({ method: 'notifications/initialized' }, undefined).ended;
    await wire.send('GET', { ...headers(), accept: 'text/event-stream' }, undefined, undefined).head;
  };
  let watched: string | undefined;
  const watch = async (uri: string): Promise<void> => {
    watched = uri;
    await post({ id: 1, method: 'resources/subscribe', params: { uri } }, 1).ended;
  };
  await open();
  return {
    call: (id, name, args, cut) =>
      answerOf(
        post({ id, method: 'tools/call', params: { name, arguments: args, _meta: { progressToken: id } } }, id),
        id,
        cut,
      ),
    watch,
    reconnect: async () => {
      wire.drop();
      await wire.send('DELETE', headers(), undefined, undefined).ended;
      await open();
      if (watched !== undefined) await watch(watched);
    },
    close: async () => {
      await wire.send('DELETE', headers(), undefined, undefined).ended;
      wire.drop();
    },
  };
}
