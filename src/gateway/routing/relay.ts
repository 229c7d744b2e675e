/**
 * Requests that servers answer. The relay finds the server by the shown name, sends the request through the bridge, and
 * translates the answer to the client's era. A tool call costs one scan of the params, without parsing or copies.
 * Not here: targets of other requests (passthrough-targets.ts), policy (host/), requests of servers to clients (bridge/).
 * Invariant: every exchange that enters is ended once.
 */

import type { HostRequestOptions, ToolResult } from '../../host/host-interface.js';
import { BytesMemo } from '../../kernel/bytes-memo.js';
import { isHostError } from '../../kernel/errors.js';
import { META, SUBSCRIPTION_ID } from '../../session/eras/modern/protocol.js';
import type { ServerEra } from '../../session/eras/server-era.js';
import { editMembers, type MemberEdits } from '../../wire/json-edit.js';
import { isObject, stringOf, uniqueMembers } from '../../wire/json-members.js';
import { eachMember, readString } from '../../wire/json-scan.js';
import { METHODS, NOTIFICATION, type PassthroughMethod, RPC } from '../../wire/methods.js';
import type { Bridge, BridgedRequest, BridgeOptions, Relayed } from '../bridge/bridged-request.js';
import { badResult } from '../eras/era.js';
import { eraOf } from '../eras/eras.js';
import { type Exchange, invalidParams, isFailure, type RpcFailure } from '../exchange.js';
import { isLogged, isLogLevel, LOG_LEVEL, type LogLevel, type LogLevels } from '../listening/log-levels.js';
import { callFailure, type FailureContext, requestFailure, translateError } from '../messages/failures.js';
import type { Upstreams } from '../upstreams.js';
import type { ToolTarget } from '../views/view.js';
import type { Views } from '../views/views.js';
import type { ServerInfoCache } from './capabilities.js';
import { findTarget, type PassthroughTarget } from './passthrough-targets.js';

export interface RelayContext {
  readonly upstreams: Upstreams;
  readonly bridge: Bridge;
  readonly views: Views;
  readonly levels: LogLevels;
  readonly servers: ServerInfoCache;
  /** True while neither keys nor roles are configured. Only then may one caller's result be cached for all. */
  readonly mayBePublic: () => boolean;
  /** Receives internal errors. The client gets a generic error. */
  readonly onProblem: (error: unknown) => void;
}

const callKeys = ['name', 'arguments', '_meta', 'inputResponses', 'requestState'] as const;
const hopKeys = ['_meta', 'inputResponses', 'requestState'] as const;
/** Includes `name`, `uri` and `ref`, so that a request with a duplicate of one is refused. */
const passthroughKeys = [...hopKeys, 'name', 'uri', 'ref'] as const;
const noArguments = Buffer.from('{}');
const nameCharsShown = 200;
const duplicateParams = invalidParams('params must be an object without duplicate keys');
const duplicateMeta = invalidParams('params._meta must be an object without duplicate keys');
/** Removed from the params: these members are written again for the hop to the server. */
const hopMembers: MemberEdits = hopKeys.map((key) => [key, undefined] as const);

export class Relay {
  readonly #context: RelayContext;

  constructor(context: RelayContext) {
    this.#context = context;
  }

  call(exchange: Exchange): void {
    const members = exchange.params && uniqueMembers(exchange.params, callKeys);
    if (!members) return exchange.fail(duplicateParams);
    const name = members[0] && stringOf(members[0]);
    if (name === undefined) return exchange.fail(invalidParams('params.name must be a string'));
    if (members[1] && !isObject(members[1])) return exchange.fail(invalidParams('params.arguments must be an object'));
    const view = this.#viewOf(exchange);
    const target = view.findTool(name);
    if (target) return this.#call(exchange, target, members);
    // At boot not every tool is known: an unknown tool is refused only after the startup listing.
    const listing = view.startupListing();
    if (!listing) return exchange.fail(unknownTool(name));
    const retry = () => {
      const found = this.#viewOf(exchange).findTool(name);
      if (found) this.#call(exchange, found, members);
      else exchange.fail(unknownTool(name));
    };
    listing.then(retry, retry).catch((error: unknown) => this.#broken(exchange, error));
  }

  #call(exchange: Exchange, { server, tool }: ToolTarget, members: readonly (Buffer | undefined)[]): void {
    const [, args = noArguments, metaBytes, inputResponses, requestState] = members;
    const meta = readMeta(metaBytes);
    if (!meta) return exchange.fail(duplicateMeta);
    const target = { server, serverEra: this.#context.servers.of(server).knownEra, tool, params: args };
    this.#send(new UpstreamRequest(exchange, target, meta, inputResponses, requestState, this.#context), true);
  }

  /** Forwards a request with the server's own names. */
  passthrough(exchange: Exchange, { target: kind, mayRequireInput }: PassthroughMethod): void {
    const { params } = exchange;
    const members = params && uniqueMembers(params, passthroughKeys);
    if (!params || !members) return exchange.fail(duplicateParams);
    const [metaBytes, inputResponses, requestState] = members;
    const meta = readMeta(metaBytes);
    if (!meta) return exchange.fail(duplicateMeta);
    const send = (found: PassthroughTarget | RpcFailure): void => {
      if (!('server' in found)) return exchange.fail(found);
      const { server, edits } = found;
      const sent = editMembers(params, [...edits, ...hopMembers]);
      if (!sent) return exchange.fail(duplicateParams);
      const target = { server, serverEra: this.#context.servers.of(server).knownEra, tool: undefined, params: sent };
      const request = new UpstreamRequest(exchange, target, meta, inputResponses, requestState, this.#context);
      this.#send(request, mayRequireInput ?? false);
    };
    const found = findTarget(kind, this.#viewOf(exchange), params, exchange);
    const listing = 'server' in found && !found.isGuess ? undefined : this.#viewOf(exchange).startupListing();
    if (!listing) return send(found);
    const retry = () => send(findTarget(kind, this.#viewOf(exchange), params, exchange));
    listing.then(retry, retry).catch((error: unknown) => this.#broken(exchange, error));
  }

  /** Sends the request and ends its exchange. The bridge is used only if the server may need input. */
  #send(request: UpstreamRequest, mayRequireInput: boolean): void {
    let relayed: Promise<Relayed>;
    try {
      relayed = mayRequireInput ? this.#context.bridge.relay(request) : request.send({});
    } catch (error) {
      return this.#failed(request, error);
    }
    relayed.then(
      (answer) => {
        try {
          this.#answered(request, answer);
        } catch (error) {
          this.#failed(request, error);
        }
      },
      (error: unknown) => this.#failed(request, error),
    );
  }

  #answered(request: UpstreamRequest, { kind, bytes, era }: Relayed): void {
    const { exchange, server } = request;
    const { client, method } = exchange;
    if (kind === 'error')
      return exchange.fail(translateError(bytes, { ...this.#failureContext(request), serverEra: era }));
    if (!isObject(bytes)) return exchange.fail(badResult('is not an object'));
    const isCacheable = METHODS.get(method)?.isCacheable ?? false;
    if (era === client.era && !isCacheable) return exchange.succeed(bytes);
    const serverInfo = this.#context.servers.of(server).info;
    const mayBePublic = isCacheable && this.#context.mayBePublic();
    const context = { from: era, isCacheable, serverInfo, mayBePublic };
    const translated = eraOf(client.era).translateResult(bytes, context);
    if (isFailure(translated)) exchange.fail(translated);
    else exchange.succeed(...translated);
  }

  #failed(request: UpstreamRequest, error: unknown): void {
    const { exchange } = request;
    if (!isHostError(error)) this.#context.onProblem(error);
    const context = this.#failureContext(request);
    if (context.tool === undefined) return exchange.fail(requestFailure(error, context));
    const failed = callFailure(error, context);
    if ('result' in failed) exchange.succeed(failed.result);
    else exchange.fail(failed.failure);
  }

  #failureContext({ exchange, target: { server, tool } }: UpstreamRequest): FailureContext {
    const { era, info } = this.#context.servers.of(server);
    return { method: exchange.method, tool, clientEra: exchange.client.era, server, serverEra: era, serverInfo: info };
  }

  #viewOf({ client }: Exchange) {
    return this.#context.views.of(client.endpoint, client.principal);
  }

  #broken(exchange: Exchange, error: unknown): void {
    this.#context.onProblem(error);
    exchange.fail({ code: RPC.internalError, message: 'internal error' });
  }
}

const unknownTool = (name: string): RpcFailure => invalidParams(`unknown tool: ${name.slice(0, nameCharsShown)}`);

const logMethod = 'notifications/message';
const nul = Buffer.from([0]);

interface UpstreamTarget {
  readonly server: string;
  /** Last known era of the server. */
  readonly serverEra: ServerEra | undefined;
  /** Undefined: not a tool call. */
  readonly tool: string | undefined;
  /** Arguments of a tool call, or all params of another request. */
  readonly params: Buffer;
}

/**
 * One request that the bridge sends to a server, and the relay of its progress and logs to the client.
 * Not here: the options that the bridge adds (eras/).
 * Invariant: protocol members of the client's `_meta` never reach the server; all other members do.
 */
class UpstreamRequest implements BridgedRequest {
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

  get serverEra(): ServerEra | undefined {
    return this.target.serverEra;
  }

  /** The members are listed one by one: a spread costs more than the rest of this method. */
  send({ members, capabilities, onServerRequest, signal }: BridgeOptions): Promise<Relayed> {
    const { client, method } = this.exchange;
    const { server, tool, params } = this.target;
    const options: HostRequestOptions = {
      isChecked: true,
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

  /** The progress token and log level of the new exchange replace those of the first exchange. */
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

/** Adds the log level for a server that sends logs only for requests that carry one. */
function metaFor(
  era: ServerEra | undefined,
  forwarded: string | undefined,
  level: LogLevel | undefined,
): string | undefined {
  if (level === undefined || era?.logLevelSource !== 'request') return forwarded;
  const asked = `"${LOG_LEVEL}":"${level}"`;
  return forwarded === undefined ? asked : `${asked},${forwarded}`;
}

/**
 * `_meta` of a client's request, split into members for the gateway and members for the server.
 * Invariant: protocol members of the client's `_meta` never reach the server.
 */
interface RequestMeta {
  /** JSON text of the token as sent, quotes included. */
  readonly progressToken: string | undefined;
  readonly logLevel: LogLevel | undefined;
  /** JSON text of all other members, without braces. */
  readonly forwarded: string | undefined;
}

const noMeta: RequestMeta = { progressToken: undefined, logLevel: undefined, forwarded: undefined };
const ownKeys = new Set<string>([...Object.values(META), LOG_LEVEL, SUBSCRIPTION_ID, 'progressToken']);

/** The protocol defines a handful of members, and clients add few. */
const membersMax = 64;

/** Undefined: `meta` is not an object, has a duplicate key, or has too many members. */
export function readMeta(meta: Buffer | undefined): RequestMeta | undefined {
  return meta ? (metas.of(meta, metaOf, isReusable) ?? undefined) : noMeta;
}

const metas = new BytesMemo<RequestMeta | null>();
/** Metadata with a progress token is not cached, because a token belongs to one request. */
const isReusable = (meta: RequestMeta | null): boolean => meta !== null && meta.progressToken === undefined;

function metaOf(meta: Buffer): RequestMeta | null {
  let progressToken: string | undefined;
  let logLevel: LogLevel | undefined;
  let forwarded = '';
  // An array, because most requests have two or three members: a Set would cost more.
  const seen: string[] = [];
  const after = eachMember(meta, 0, meta.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    const key = readString(meta, keyStart, keyEnd);
    if (seen.length >= membersMax || seen.includes(key)) return false;
    seen.push(key);
    if (!ownKeys.has(key)) {
      forwarded += `${forwarded === '' ? '' : ','}${meta.toString('utf8', keyStart - 1, valueEnd)}`;
    } else if (key === 'progressToken') {
      if (isToken(meta[valueStart] as number)) progressToken = meta.toString('utf8', valueStart, valueEnd);
    } else if (key === LOG_LEVEL) {
      const level = stringOf(meta.subarray(valueStart, valueEnd));
      if (isLogLevel(level)) logLevel = level;
    }
    return undefined;
  });
  if (after !== meta.length) return null;
  return { progressToken, logLevel, forwarded: forwarded === '' ? undefined : forwarded };
}

/** The first byte of a string or a number. */
const isToken = (first: number): boolean => first === 0x22 || first === 0x2d || (first >= 0x30 && first <= 0x39);
