/**
 * The host's side of a broker, as little of it as a worker can tell: answers manifests and calls in the order it is told to,
 * and runs a key once. Nothing is guarded, kept or limited.
 */
import {
  changedNews,
  errorReply,
  type Manifest,
  manifestReply,
  progressNews,
  type Request,
  readRequest,
  resultReply,
} from '../../src/broker/messages.js';
import {
  olderErrorReply,
  olderManifestReply,
  olderResultReply,
  readOlderRequest,
} from '../../src/broker/older-messages.js';
import type { Delivery, HostLink, OpenHostLink, Sender } from '../../src/broker/ports.js';
import { Cancellation } from '../../src/kernel/cancel-signal.js';
import { type HostError, isHostError } from '../../src/kernel/errors.js';
import type { Era } from '../../src/wire/channel.js';
import type { JsonText } from '../../src/wire/frame.js';

export interface ScriptedCall {
  readonly key: string;
  readonly server: string | undefined;
  readonly tool: string;
  readonly args: string;
  readonly from: Sender;
  readonly request: Request | undefined;
  readonly deliveries: number;
}

export interface ScriptedHostOptions {
  /** `server/tool`, each; or by who asks. */
  readonly tools?: readonly string[] | ((who: Sender) => readonly string[]);
  readonly isOlder?: boolean;
  readonly era?: Era;
}

export class ScriptedHost {
  readonly #open: OpenHostLink;
  readonly #options: ScriptedHostOptions;
  #link: HostLink | undefined;
  #tools: (who: Sender) => readonly string[];
  #version = 0;
  /** Outcomes by mailbox and key: a key runs once. */
  readonly #journal = new Map<string, Promise<readonly JsonText[]>>();

  /** Requests of any kind that were handed out. */
  readonly deliveries: Delivery[] = [];
  manifestsAsked = 0;
  /** Executions. */
  readonly ran: ScriptedCall[] = [];
  readonly cancelled: string[] = [];
  /** Text of the result; what it throws is the error. */
  onCall: (call: ScriptedCall) => string | Promise<string> = ({ tool, args }) =>
    JSON.stringify({ content: [{ type: 'text', text: `${tool} ${args}` }] });
  /** Instead of the manifest. */
  onManifest: (() => JsonText | HostError | undefined) | undefined;

  constructor(open: OpenHostLink, options: ScriptedHostOptions = {}) {
    const { tools = ['nova/click'] } = options;
    this.#open = open;
    this.#options = options;
    this.#tools = typeof tools === 'function' ? tools : () => tools;
  }

  async connect(): Promise<void> {
    this.#link = await this.#open(
      {
        deliver: (delivery) => void this.#deliver(delivery),
        cancelled: (from, id) => void this.cancelled.push(`${from.mailbox}/${id}`),
      },
      new Cancellation(),
    );
  }

  revision(who: Sender = nobody): string {
    return `r${this.#version}-${this.#tools(who).length}`;
  }

  /** Other tools from now on; workers are told unless it is kept from them. */
  change(tools: readonly string[], isTold = true): void {
    this.#tools = () => tools;
    this.#version++;
    if (isTold) this.announce();
  }

  announce(): void {
    this.#link?.tellAll(changedNews(this.revision()));
  }

  progress(mailbox: string, key: string, params: unknown): void {
    this.#link?.tell(mailbox, ...progressNews(key, Buffer.from(JSON.stringify(params))));
  }

  /** What it ran so far. */
  forget(): void {
    this.#journal.clear();
  }

  async close(): Promise<void> {
    await this.#link?.close();
  }

  async #deliver(delivery: Delivery): Promise<void> {
    this.deliveries.push(delivery);
    const parts = await this.#answer(delivery);
    try {
      await delivery.reply(...parts);
      delivery.ack();
    } catch {
      // The link is lost, and the request comes again.
    }
  }

  #answer(delivery: Delivery): Promise<readonly JsonText[]> | readonly JsonText[] {
    const { body, from, id, deliveries } = delivery;
    const older = this.#options.isOlder ? readOlderRequest(body) : undefined;
    const request = older ? undefined : readRequest(body);
    if ((older ?? request)?.op === 'manifest') return this.#manifest(from);
    const key = `${from.mailbox}/${id}`;
    const known = this.#journal.get(key);
    if (known !== undefined) return known;
    const { tool, args } = (older ?? request) as { readonly tool: string; readonly args: Buffer };
    const server = request?.op === 'call' ? request.server : undefined;
    const outcome = this.#run({ key: id, server, tool, args: args.toString(), from, request, deliveries });
    this.#journal.set(key, outcome);
    return outcome;
  }

  async #run(call: ScriptedCall): Promise<readonly JsonText[]> {
    const { isOlder, era = 'legacy' } = this.#options;
    this.ran.push(call);
    try {
      const bytes = Buffer.from(await this.onCall(call));
      return isOlder ? [olderResultReply(bytes)] : resultReply(bytes, era);
    } catch (error) {
      if (!isHostError(error)) throw error;
      return isOlder ? [olderErrorReply(error)] : errorReply(error);
    }
  }

  #manifest(who: Sender): readonly JsonText[] {
    this.manifestsAsked++;
    const said = this.onManifest?.();
    if (isHostError(said)) return this.#options.isOlder ? [olderErrorReply(said)] : errorReply(said);
    if (said !== undefined) return [said as JsonText];
    const manifest: Manifest = { revision: this.revision(who), tools: this.#tools(who).map(toolOf) };
    return [this.#options.isOlder ? olderManifestReply(manifest.tools) : manifestReply(manifest)];
  }
}

const nobody: Sender = { mailbox: '', role: undefined };

function toolOf(path: string): Manifest['tools'][number] {
  const [server = '', name = ''] = path.split('/');
  return { server, name, raw: Buffer.from(JSON.stringify({ name, inputSchema: { type: 'object' } })) };
}
