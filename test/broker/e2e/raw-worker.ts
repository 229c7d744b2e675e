/** A WebSocket to the broker that sends any text of a test, valid or not, and records the answers. */
import { randomBytes } from 'node:crypto';
import { WebSocket } from 'ws';
import { eventually } from '../../eventually.js';

type Message = Readonly<Record<string, unknown>>;

export class RawWorker {
  readonly #socket: WebSocket;
  readonly messages: Message[] = [];
  closed: { readonly code: number; readonly reason: string } | undefined;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on('message', (data: Buffer) => this.messages.push(JSON.parse(data.toString()) as Message));
    socket.on('close', (code, reason) => (this.closed = { code, reason: reason.toString() }));
    socket.on('unexpected-response', (request, response) => {
      this.closed = { code: response.statusCode ?? 0, reason: '' };
      request.destroy();
    });
    socket.on('error', () => {});
  }

  /** Connects with this key; the connection may be refused. */
  static open(url: string, key: string, session = newSession(), claims: Record<string, string> = {}): RawWorker {
    const headers = { authorization: `Bearer ${key}`, 'hostler-session': session, ...claims };
    return new RawWorker(new WebSocket(url, { headers }));
  }

  /** Opens a session with this key. */
  static async joined(url: string, key: string, session = newSession()): Promise<RawWorker> {
    const raw = RawWorker.open(url, key, session);
    await raw.heard('welcome');
    return raw;
  }

  say(message: object): this {
    this.#socket.send(JSON.stringify({ v: 1, ...message }));
    return this;
  }

  call(key: string, over: object = {}): this {
    return this.say({
      ...{ op: 'call', key, deadlineMs: 20_000, server: 'books', tool: 'work', args: { nonce: key } },
      ...over,
    });
  }

  heard(op: string, key?: string): Promise<Message> {
    return eventually(`a ${op}`, () => {
      const found = this.messages.find((message) => message.op === op && (key === undefined || message.key === key));
      if (!found && this.closed) throw new Error(`closed with ${this.closed.code} before a ${op}`);
      return found;
    });
  }

  end(): void {
    this.#socket.terminate();
  }
}

export const newSession = (): string => randomBytes(12).toString('hex');
