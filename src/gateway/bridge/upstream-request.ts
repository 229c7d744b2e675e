/**
 * One request to a server, as the bridge sends it: with its principal, its cancel signal, and where progress and logs go.
 * Not here: which server it goes to (routing/), what the bridge adds (eras/).
 * Invariant: `_meta` of the client's hop never reaches the server; only foreign members do.
 */
import type { HostRequestOptions, ToolResult } from '../../host/host-interface.js';
import type { Era } from '../../wire/channel.js';
import { editMembers } from '../../wire/json-edit.js';
import { uniqueMembers } from '../../wire/json-members.js';
import { NOTIFICATION } from '../../wire/rpc-codes.js';
import { eraOf } from '../eras/eras.js';
import type { Exchange } from '../exchange.js';
import type { LogLevels } from '../listening/log-levels.js';
import { isWanted, type LogLevel } from '../messages/log-level.js';
import { LOG_LEVEL, noMeta, type RequestMeta, readMeta } from '../messages/request-meta.js';
import type { Upstreams } from '../upstreams.js';
import type { BridgedRequest, BridgeOptions, Relayed } from './bridged-request.js';

const logMethod = 'notifications/message';
const nul = Buffer.from([0]);

/** Where a request goes. */
export interface UpstreamTarget {
  readonly server: string;
  /** The era of the server as last known; undefined: never seen. */
  readonly serverEra: Era | undefined;
  /** Undefined: not a tool call. */
  readonly tool: string | undefined;
  /** The arguments of a tool call, or all params of another request. */
  readonly params: Buffer;
}

export class UpstreamRequest implements BridgedRequest {
  readonly exchange: Exchange;
  readonly target: UpstreamTarget;
  readonly inputResponses: Buffer | undefined;
  readonly requestState: Buffer | undefined;
  readonly #upstreams: Upstreams;
  readonly #levels: LogLevels;
  readonly #meta: string | undefined;
  readonly #onProgress: HostRequestOptions['onProgress'];
  readonly #onServerNotification: HostRequestOptions['onServerNotification'];
  /** The exchange that waits for the answer: another one once a parked call goes on. */
  #waiting: Exchange;
  #token: string | undefined;
  #level: LogLevel | undefined;

  constructor(
    exchange: Exchange,
    target: UpstreamTarget,
    meta: RequestMeta,
    inputResponses: Buffer | undefined,
    requestState: Buffer | undefined,
    { upstreams, levels }: { readonly upstreams: Upstreams; readonly levels: LogLevels },
  ) {
    this.exchange = exchange;
    this.target = target;
    this.inputResponses = inputResponses;
    this.requestState = requestState;
    this.#upstreams = upstreams;
    this.#levels = levels;
    this.#waiting = exchange;
    this.#token = meta.progressToken;
    this.#level = this.#levelOf(exchange, meta);
    this.#meta = metaFor(target.serverEra, meta.forwarded, this.#level);
    this.#onProgress = this.#token === undefined ? undefined : (params) => this.#progress(params);
    this.#onServerNotification = this.#getsLogs() ? (method, params) => this.#log(method, params) : undefined;
  }

  get server(): string {
    return this.target.server;
  }

  get serverEra(): Era | undefined {
    return this.target.serverEra;
  }

  /** Members are written out: copying the options with a spread costs more than the rest of this. */
  send({ members, capabilities, onServerRequest, signal }: BridgeOptions): Promise<Relayed> {
    const { client, method } = this.exchange;
    const { server, tool, params } = this.target;
    const options: HostRequestOptions = {
      areArgumentsScanned: true,
      principal: client.principal,
      instance: client.id,
      signal: signal ?? this.exchange.signal,
      meta: this.#meta,
      members,
      capabilities,
      onProgress: this.#onProgress,
      onServerRequest,
      onServerNotification: this.#onServerNotification,
    };
    return tool === undefined
      ? this.#upstreams.request(server, method, params, options)
      : this.#upstreams.call(server, tool, params, options).then(asRelayed);
  }

  identity(): Buffer {
    const { server, tool, params } = this.target;
    const names = tool === undefined ? [this.exchange.method, server] : [this.exchange.method, server, tool];
    return Buffer.concat([...names.flatMap((name) => [Buffer.from(name), nul]), params, nul]);
  }

  /** A parked call goes on: progress and logs go to this exchange, as it wants them. */
  moveTo(exchange: Exchange): void {
    const [bytes] = (exchange.params && uniqueMembers(exchange.params, ['_meta'])) ?? [];
    const meta = readMeta(bytes) ?? noMeta;
    this.#waiting = exchange;
    this.#token = meta.progressToken;
    this.#level = this.#levelOf(exchange, meta);
  }

  #progress(params: Buffer): void {
    if (this.#token === undefined) return;
    const edited = editMembers(params, [['progressToken', this.#token]]);
    if (edited) this.#waiting.notify(NOTIFICATION.progress, edited);
  }

  #log(method: string, params: Buffer | undefined): void {
    if (method !== logMethod || !params) return;
    if (this.#getsLogs() && isWanted(this.#level, params)) this.#waiting.notify(method, params);
  }

  #getsLogs(): boolean {
    return this.#level !== undefined || eraOf(this.#waiting.client.era).logLevelSource === 'session';
  }

  #levelOf({ client }: Exchange, meta: RequestMeta): LogLevel | undefined {
    return eraOf(client.era).logLevelSource === 'session' ? this.#levels.of(client.id) : meta.logLevel;
  }
}

const asRelayed = ({ bytes, era }: ToolResult): Relayed => ({ kind: 'result', bytes, era });

/** A modern server logs only for requests that ask for logs. */
function metaFor(era: Era | undefined, forwarded: string | undefined, level: LogLevel | undefined): string | undefined {
  if (level === undefined || era !== 'modern') return forwarded;
  const asked = `"${LOG_LEVEL}":"${level}"`;
  return forwarded === undefined ? asked : `${asked},${forwarded}`;
}
