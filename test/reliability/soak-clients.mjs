/**
 * MCP clients of both eras for the soak, by hand over node:http with keep-alive: they come, call, hear of changed lists, and go,
 * some of them without a word.
 * Not here: when they come and go and what they call (soak-driver.mjs).
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

/** Ends what a client had under way when it left. */
export const left = 'left';

export class SoakClient {
  isOpen = false;
  calls = 0;
  // All clients together stay below the 511 connections that may wait to be accepted: beyond, the kernel drops what they send, and
  // sends it again so late that the gateway has given the connection up.
  #agent = new Agent({ keepAlive: true, maxSockets: 8 });
  #open = new Set();
  #url;
  #headers;
  #isModern;
  #session;
  #lastId = 0;
  #hasLeft = false;

  /**
   * `server`: the one server of its endpoint; undefined for the endpoint of all. `onChanged` hears of changed lists, `onStreamEnded` of a stream
   * that ended though its client is still there.
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

  /** Ready to call, with a stream for notifications if it wants one. Undefined when all is well, else what went wrong. */
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

  /** `ok`, `left`, the code of Hostler's error, or what went wrong with the connection or the answer. */
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

  /** Silently: connections are cut in the middle of everything, and no DELETE says that the session is over. */
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

  /** `code` is there only when no answer came. */
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

  /** Open until the client leaves. It is not waited for when it does. */
  #stream(method, headers, body) {
    const sent = request({ ...this.#url, method, headers, agent: this.#agent }, (response) => {
      response.setEncoding('utf8');
      response.on('data', (chunk) => {
        // A notification may be cut in two by the network; so few are that one heard less does not matter.
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

/** An error without a code of Hostler's: of the gateway itself, or of the server. */
const ownCode = ({ status }, { error }) => `status ${status}, rpc ${error.code}: ${error.message.slice(0, 80)}`;

/** The answer with this id, from a JSON body or from an event stream that ended. */
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
