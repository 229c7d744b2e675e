/**
 * One request that the bridge sends to a server, and the relay of its progress and logs to the client.
 * Not here: the choice of the server (routing/), the options that the bridge adds (eras/).
 * Invariant: protocol members of the client's `_meta` never reach the server; all other members do.
 */
import type { HostRequestOptions, ToolResult } from '../../host/host-interface.js';
import type { Era } from '../../wire/channel.js';
import { editMembers } from '../../wire/json-edit.js';
import { uniqueMembers } from '../../wire/json-members.js';
import { NOTIFICATION } from '../../wire/methods.js';
import { eraOf } from '../eras/eras.js';
import type { Exchange } from '../exchange.js';
import type { LogLevels } from '../listening/log-levels.js';
import { isLogged, LOG_LEVEL, type LogLevel, noMeta, type RequestMeta, readMeta } from '../messages/request-meta.js';
import type { Upstreams } from '../upstreams.js';
import type { BridgedRequest, BridgeOptions, Relayed } from './bridged-request.js';

const logMethod = 'notifications/message';
const nul = Buffer.from([0]);

export interface UpstreamTarget {
  readonly server: string;
  /** Last known era of the server. */
  readonly serverEra: Era | undefined;
  /** Undefined: not a tool call. */
  readonly tool: string | undefined;
  /** Arguments of a tool call, or all params of another request. */
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
  /** The exchange that waits for the answer. `moveTo` changes it. */
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

  /** The members are listed one by one: a spread costs more than the rest of this method. */
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

  /** Progress token and log level of the new exchange replace those of the first one. */
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
    if (this.#getsLogs() && isLogged(this.#level, params)) this.#waiting.notify(method, params);
  }

  #getsLogs(): boolean {
    return this.#level !== undefined || eraOf(this.#waiting.client.era).logLevelSource === 'session';
  }

  #levelOf({ client }: Exchange, meta: RequestMeta): LogLevel | undefined {
    return eraOf(client.era).logLevelSource === 'session' ? this.#levels.of(client.id) : meta.logLevel;
  }
}

const asRelayed = ({ bytes, era }: ToolResult): Relayed => ({ kind: 'result', bytes, era });

/** A modern server sends logs only for requests that carry a log level. */
function metaFor(era: Era | undefined, forwarded: string | undefined, level: LogLevel | undefined): string | undefined {
  if (level === undefined || era !== 'modern') return forwarded;
  const asked = `"${LOG_LEVEL}":"${level}"`;
  return forwarded === undefined ? asked : `${asked},${forwarded}`;
}
