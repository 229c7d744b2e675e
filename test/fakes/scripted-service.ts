/**
 * The host side of the broker, as a worker sees it: scripted answers to manifests and calls, and each key runs once. It has no
 * access control, storage or limits.
 */
import { errorBody, manifestBody, resultBody } from '../../src/broker/protocol/reply-body.js';
import type { WorkerSession } from '../../src/broker/service/transport.js';
import { HostError, isHostError } from '../../src/kernel/errors.js';
import type { Era } from '../../src/wire/channel.js';
import { type IncomingCall, ScriptedHandlers } from './scripted-handlers.js';

export interface ScriptedCall {
  readonly key: string;
  readonly server: string | undefined;
  readonly tool: string;
  readonly args: string;
  readonly session: WorkerSession;
}

/** A row of the log. `body`: the body of its outcome. */
interface Row {
  body: Buffer | undefined;
}

type Tools = readonly string[] | ((session: WorkerSession) => readonly string[]);

export class ScriptedService extends ScriptedHandlers {
  /** Tools as `server/tool`. */
  #tools: Tools;
  #version = 1;
  readonly rows = new Map<string, Row>();
  /** Every sending of a call. */
  readonly sendings: IncomingCall[] = [];
  /** Executed calls. */
  readonly ran: ScriptedCall[] = [];
  readonly cancelled: string[] = [];
  readonly ackedKeys: string[] = [];
  readonly asked: (readonly string[])[] = [];
  manifestsAsked = 0;
  owner = 'owner-1';
  era: Era = 'legacy';
  denied: HostError | undefined;
  /** Text of the result, or the whole result. An error that it throws is the outcome. */
  onCall: (call: ScriptedCall) => string | Buffer | Promise<string | Buffer> = ({ tool, args }) => `${tool} ${args}`;
  onManifest: ((session: WorkerSession) => Promise<Buffer | undefined>) | undefined;
  /** Returns the refusal of a sent call; undefined: it is accepted. */
  onSending: ((incoming: IncomingCall) => HostError | undefined) | undefined;

  constructor(tools: Tools = ['nova/nova_click']) {
    super();
    this.#tools = tools;
  }

  get revision(): string {
    return `r${this.#version}`;
  }

  setTools(tools: Tools): void {
    this.#tools = tools;
    this.#version++;
  }

  call(incoming: IncomingCall): void {
    this.sendings.push(incoming);
    const { session, request } = incoming;
    const refusal = this.onSending?.(incoming);
    if (refusal) return incoming.refuse(refusal);
    const id = `${session.name} ${request.key}`;
    const known = this.rows.get(id);
    if (known?.body) {
      session.send({ op: 'reply', key: request.key, body: known.body });
      return incoming.receipt(this.owner);
    }
    incoming.receipt(this.owner);
    if (!known) void this.#run(id, incoming);
  }

  async #run(id: string, { session, request }: IncomingCall): Promise<void> {
    const row: Row = { body: undefined };
    this.rows.set(id, row);
    const { key, server, tool, args } = request;
    const call = { key, server, tool, args: args.toString(), session };
    this.ran.push(call);
    try {
      const made = await this.onCall(call);
      const text = typeof made === 'string' ? JSON.stringify({ content: [{ type: 'text', text: made }] }) : made;
      row.body = resultBody(Buffer.from(text), this.era);
    } catch (error) {
      row.body = errorBody(isHostError(error) ? error : new HostError('protocol_error', String(error)));
    }
    if (this.rows.get(id) === row) session.send({ op: 'reply', key, body: row.body });
  }

  /** Sends progress of a running call. */
  progress({ session, key }: ScriptedCall, params: unknown): void {
    session.send({ op: 'progress', key, params: Buffer.from(JSON.stringify(params)) });
  }

  cancel(_session: WorkerSession, key: string): void {
    this.cancelled.push(key);
  }

  acknowledge(session: WorkerSession, keys: readonly string[]): void {
    this.ackedKeys.push(...keys);
    for (const key of keys) this.rows.delete(`${session.name} ${key}`);
  }

  async ask(session: WorkerSession, keys: readonly string[]) {
    this.asked.push(keys);
    const rowOf = (key: string) => this.rows.get(`${session.name} ${key}`);
    for (const key of keys) {
      const body = rowOf(key)?.body;
      if (body) session.send({ op: 'reply', key, body });
    }
    return {
      running: keys.filter((key) => rowOf(key) && !rowOf(key)?.body),
      resend: keys.filter((key) => !rowOf(key)),
    };
  }

  async manifest(session: WorkerSession): Promise<Buffer> {
    this.manifestsAsked++;
    const instead = await this.onManifest?.(session);
    if (instead) return instead;
    const names = typeof this.#tools === 'function' ? this.#tools(session) : this.#tools;
    const tools = names.map((each) => {
      const [server = '', name = ''] = each.split('/');
      return { server, name, raw: Buffer.from(JSON.stringify({ name, inputSchema: { type: 'object' } })) };
    });
    return manifestBody({ revision: this.revision, tools, denied: this.denied });
  }
}
