/**
 * Hand-written MCP clients of both eras for the soak, over node:http with keep-alive. They connect, call, receive notifications of
 * changed lists, and leave, some of them silently. Not here: when they connect, leave and call (soak-driver.mjs).
 */
import { Agent, request } from 'node:http';

const modernVersion = '2026-07-28';
const legacyVersion = '2025-11-25';
const accept = 'application/json, text/event-stream';
const info = { name: 'soak', version: '1' };
const meta = JSON.stringify({
  'io.modelcontextprotocol/protocolVersion': modernVersion,
  'io.modelcontextprotocol/clientInfo': info,
  'io.modelcontextprotocol/clientCapabilities': {},
});

/** Outcome of calls that were running when their client left. */
export const left = 'left';

export class SoakClient {
  isOpen = false;
  calls = 0;
  // All clients together stay below 511 connections, the size of the accept queue. Beyond it the kernel drops packets and
  // retransmits them so late that the gateway has closed the connection.
  #agent = new Agent({ keepAlive: true, maxSockets: 8 });
  #open = new Set();
  #url;
  #headers;
  #isModern;
  #session;
  #lastId = 0;
  #hasLeft = false;

  /**
   * `server`: the server of a one-server endpoint; undefined for the endpoint of all servers. `onChanged` is called for changed
   * lists, `onStreamEnded` if a stream ends before its client leaves.
   */
  constructor({ url, key, era, server, onChanged, onStreamEnded }) {
    const { port, pathname } = new URL(url);
    this.#url = { host: '127.0.0.1', port, path: server === undefined ? pathname : `${pathname}/${server}` };
    this.era = era;
    this.server = server;
    Object.assign(this, { onChanged, onStreamEnded });
    this.#isModern = era === 'modern';
    this.#headers = {
      accept,
      'content-type': 'application/json',
      'mcp-protocol-version': this.#isModern ? modernVersion : legacyVersion,
      authorization: `Bearer ${key}`,
    };
  }

  /** Connects, with a notification stream if `hasStream`. Resolves with undefined, or with a description of the failure. */
  async open(hasStream) {
    if (this.#isModern) {
      if (hasStream) this.#listen();
      this.isOpen = true;
      return undefined;
    }
    const params = { protocolVersion: legacyVersion, capabilities: {}, clientInfo: info };
    const { status, headers, code } = await this.#post('initialize', JSON.stringify(params), {});
    this.#session = headers?.['mcp-session-id'];
    if (this.#session === undefined) return code === 'ok' ? `status ${status} without a session` : code;
    this.#headers['mcp-session-id'] = this.#session;
    const told = await this.#send('POST', this.#headers, '{"jsonrpc":"2.0","method":"notifications/initialized"}');
    if (told.status !== 202) return told.code ?? `status ${told.status}`;
    if (hasStream) this.#stream('GET', this.#headers, undefined);
    this.isOpen = !this.#hasLeft;
    return undefined;
  }

  /** Resolves with `ok`, `left`, the code of Hostler's error, or a description of a wrong connection or answer. */
  async call(server, text) {
    this.calls++;
    const name = this.server === undefined ? `${server}__echo` : 'echo';
    const params = `{"name":"${name}","arguments":{"text":"${text}"}${this.#isModern ? `,"_meta":${meta}` : ''}}`;
    const { code, message } = await this.#post('tools/call', params, this.#isModern ? { 'mcp-name': name } : {});
    if (code !== 'ok') return code;
    const facts = message.result._meta?.['hostler/error'];
    if (facts) return facts.code;
    return message.result.content?.[0]?.text === text ? 'ok' : 'wrong answer';
  }

  async list() {
    const { code, message } = await this.#post('tools/list', this.#isModern ? `{"_meta":${meta}}` : '{}', {});
    return code === 'ok' && !Array.isArray(message.result?.tools) ? 'wrong answer' : code;
  }

  /** `isSilent`: cuts all connections without a DELETE for the session. */
  async leave(isSilent) {
    this.isOpen = false;
    if (!isSilent) {
      await Promise.all([...this.#open].map(({ settled }) => settled));
      if (this.#session !== undefined) await this.#send('DELETE', this.#headers, undefined);
    }
    this.#hasLeft = true;
    for (const { cut } of [...this.#open]) cut();
    this.#agent.destroy();
  }

  async #post(method, params, more) {
    const id = ++this.#lastId;
    const headers = this.#isModern ? { ...this.#headers, 'mcp-method': method, ...more } : this.#headers;
    const body = `{"jsonrpc":"2.0","id":${id},"method":"${method}","params":${params}}`;
    const answer = await this.#send('POST', headers, body);
    if (answer.code !== undefined) return answer;
    const message = messageOf(answer, id);
    if (message?.error) return { ...answer, code: message.error.data?.code ?? ownCode(answer, message) };
    return { ...answer, message, code: message?.result ? 'ok' : `status ${answer.status} without an answer` };
  }

  /** `code` is set only if no answer came. */
  #send(method, headers, body) {
    if (this.#hasLeft) return Promise.resolve({ code: left });
    const open = {};
    open.settled = new Promise((resolve) => {
      const settle = (outcome) => {
        this.#open.delete(open);
        resolve(outcome);
      };
      const lost = (how) => settle({ code: this.#hasLeft ? left : `connection ${how}` });
      const sent = request({ ...this.#url, method, headers, agent: this.#agent }, (response) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (chunk) => (text += chunk));
        response.on('end', () => settle({ status: response.statusCode, headers: response.headers, text }));
        response.on('close', () => lost('closed'));
      });
      sent.on('error', (error) => lost(error.code));
      sent.end(body);
      open.cut = () => sent.destroy();
    });
    this.#open.add(open);
    return open.settled;
  }

  #listen() {
    const params = `{"notifications":{"toolsListChanged":true},"_meta":${meta}}`;
    const headers = { ...this.#headers, 'mcp-method': 'subscriptions/listen' };
    const body = `{"jsonrpc":"2.0","id":${++this.#lastId},"method":"subscriptions/listen","params":${params}}`;
    this.#stream('POST', headers, body);
  }

  /** A stream that stays open until the client leaves. Leaving does not wait for it. */
  #stream(method, headers, body) {
    const sent = request({ ...this.#url, method, headers, agent: this.#agent }, (response) => {
      response.setEncoding('utf8');
      response.on('data', (chunk) => {
        // A notification may be split between two chunks and then missed. That is rare enough not to matter.
        if (chunk.includes('list_changed')) this.onChanged(this);
      });
      response.on('error', () => {});
    });
    sent.on('error', () => {});
    sent.end(body);
    const open = { cut: () => sent.destroy(), settled: undefined };
    sent.on('close', () => {
      this.#open.delete(open);
      if (this.isOpen) this.onStreamEnded();
    });
    this.#open.add(open);
  }
}

/** Text of an error without a Hostler code: from the gateway itself, or from the server. */
const ownCode = ({ status }, { error }) => `status ${status}, rpc ${error.code}: ${error.message.slice(0, 80)}`;

/** Finds the answer with this id in a JSON body or in an ended event stream. */
function messageOf({ headers, text }, id) {
  if (!String(headers['content-type']).startsWith('text/event-stream')) return parsed(text);
  for (const line of text.split('\n')) {
    if (!line.startsWith('data:')) continue;
    const message = parsed(line.slice('data:'.length));
    if (message?.id === id && message.method === undefined) return message;
  }
  return undefined;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
