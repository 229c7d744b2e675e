/**
 * What goes with a request beside its own words: who asks, until when anybody waits, and where progress and logs go.
 * Not here: what the bridge adds (bridge/).
 */
import type { HostRequestOptions } from '../../host/host-interface.js';
import { editMembers } from '../../wire/json-edit.js';
import { uniqueMembers } from '../../wire/json-members.js';
import { NOTIFICATION } from '../../wire/rpc-codes.js';
import type { BridgeOptions } from '../bridge/bridged-request.js';
import type { Exchange } from '../exchange.js';
import type { LogLevels } from '../listening/log-levels.js';
import { isWanted, type LogLevel } from '../messages/log-level.js';
import { LOG_LEVEL, noMeta, type RequestMeta, readMeta } from '../messages/request-meta.js';
import type { ServerInfo } from './server-info.js';

const logged = 'notifications/message';

/** A request on its way to a server, and the exchange that waits for it: another one, when a parked call goes on. */
export class RelayRoute {
  readonly #levels: LogLevels;
  readonly #first: Exchange;
  readonly #meta: string | undefined;
  readonly #onProgress: HostRequestOptions['onProgress'];
  readonly #onServerNotification: HostRequestOptions['onServerNotification'];
  #exchange: Exchange;
  #token: string | undefined;
  #level: LogLevel | undefined;

  constructor(exchange: Exchange, meta: RequestMeta, speaker: ServerInfo, levels: LogLevels) {
    this.#levels = levels;
    this.#first = exchange;
    this.#exchange = exchange;
    this.#token = meta.progressToken;
    this.#level = this.#levelOf(exchange, meta);
    this.#meta = metaFor(speaker, meta.forwarded, this.#level);
    this.#onProgress = this.#token === undefined ? undefined : (params) => this.#progress(params);
    const isTold = exchange.client.era === 'legacy' || this.#level !== undefined;
    this.#onServerNotification = isTold ? (method, params) => this.#said(method, params) : undefined;
  }

  /** With what the bridge adds. Written out: copying members would cost more than the rest of this. */
  optionsWith({ members, capabilities, onServerRequest, signal }: BridgeOptions): HostRequestOptions {
    const { client } = this.#first;
    return {
      areArgumentsScanned: true,
      principal: client.principal,
      instance: client.id,
      signal: signal ?? this.#first.signal,
      meta: this.#meta,
      members,
      capabilities,
      onProgress: this.#onProgress,
      onServerRequest,
      onServerNotification: this.#onServerNotification,
    };
  }

  /** From now on this exchange waits for it; progress and logs are told as it asks for them. */
  moveTo(exchange: Exchange): void {
    const [meta] = (exchange.params && uniqueMembers(exchange.params, ['_meta'])) ?? [];
    const read = readMeta(meta) ?? noMeta;
    this.#exchange = exchange;
    this.#token = read.progressToken;
    this.#level = this.#levelOf(exchange, read);
  }

  #progress(params: Buffer): void {
    if (this.#token === undefined) return;
    const told = editMembers(params, [['progressToken', this.#token]]);
    if (told) this.#exchange.notify(NOTIFICATION.progress, told);
  }

  #said(method: string, params: Buffer | undefined): void {
    if (method !== logged || !params) return;
    const isTold = this.#exchange.client.era === 'legacy' || this.#level !== undefined;
    if (isTold && isWanted(this.#level, params)) this.#exchange.notify(method, params);
  }

  #levelOf({ client }: Exchange, meta: RequestMeta): LogLevel | undefined {
    return client.era === 'legacy' ? this.#levels.of(client.id) : meta.logLevel;
  }
}

/** A modern server logs only for requests that ask for it. */
function metaFor(speaker: ServerInfo, forwarded: string | undefined, level: LogLevel | undefined): string | undefined {
  if (level === undefined || speaker.era === 'legacy') return forwarded;
  const asked = `"${LOG_LEVEL}":"${level}"`;
  return forwarded === undefined ? asked : `${asked},${forwarded}`;
}
