/**
 * A transport with the interface of the SDKs and a small legacy server behind it. Unlike a network, it answers inside `send`, in
 * the same tick. Tests can silence it, close it, or make it send any message.
 */

export interface Json {
  readonly [key: string]: unknown;
}

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Json;
}

export interface FakeTransportScript {
  /** Tools by name, and their descriptions. */
  readonly tools?: Readonly<Record<string, string>>;
  /** Returns the answer to a call; undefined: no answer. */
  readonly call?: (name: string, id: number, transport: FakeTransport) => Json | undefined;
  /** Methods that it does not answer. */
  readonly ignores?: readonly string[];
  readonly start?: () => Promise<void>;
  readonly close?: () => Promise<void>;
}

export class FakeTransport {
  onmessage?: (message: unknown, extra?: unknown) => unknown;
  onclose?: () => void;
  onerror?: (error: Error) => void;
  starts = 0;
  closes = 0;
  isSilent = false;
  readonly sent: Message[] = [];
  readonly #script: FakeTransportScript;

  constructor(script: FakeTransportScript = {}) {
    this.#script = script;
  }

  /** Methods of the received requests, without the handshake. */
  get calls(): string[] {
    return this.sent.flatMap(({ method, params }) => (method === 'tools/call' ? [String(params?.name)] : []));
  }

  async start(): Promise<void> {
    this.starts++;
    await this.#script.start?.();
  }

  async send(message: Message): Promise<void> {
    this.sent.push(message);
    const { id } = message;
    if (this.isSilent || id === undefined || message.method === undefined) return;
    if (this.#script.ignores?.includes(message.method)) return;
    const answer = this.#answerTo(message, id);
    if (answer) this.onmessage?.({ jsonrpc: '2.0', id, ...answer });
  }

  async close(): Promise<void> {
    this.closes++;
    await this.#script.close?.();
    this.onclose?.();
  }

  #answerTo({ method, params }: Message, id: number): Json | undefined {
    const { tools = { say: 'says something' }, call } = this.#script;
    switch (method) {
      case 'initialize':
        return { result: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: serverInfo } };
      case 'tools/list':
        return { result: { tools: Object.entries(tools).map(([name, description]) => tool(name, description)) } };
      case 'tools/call': {
        const name = String(params?.name);
        return call ? call(name, id, this) : { result: { content: [{ type: 'text', text: name }] } };
      }
      case 'ping':
        return { result: {} };
      default:
        return { error: { code: -32601, message: 'no such method' } };
    }
  }
}

const serverInfo = { name: 'fake', version: '1' };
const tool = (name: string, description: string) => ({
  name,
  description,
  annotations: { title: description },
  inputSchema: { type: 'object' },
});
