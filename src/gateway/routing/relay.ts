/**
 * Requests that servers answer. The relay finds the server by the shown name, sends the request through the bridge, and
 * translates the answer to the client's era. A tool call costs one scan of the params, without parsing or copies.
 * Not here: policy (host/), requests of servers to clients (bridge/).
 * Invariant: every exchange that enters is ended once.
 */
import { isHostError } from '../../kernel/errors.js';
import type { JsonText } from '../../wire/channel.js';
import { editMembers, type MemberEdits } from '../../wire/json-edit.js';
import { isObject, memberString, stringOf, uniqueMembers } from '../../wire/json-members.js';
import { METHODS, type Method, RPC } from '../../wire/methods.js';
import type { Bridge, Relayed } from '../bridge/bridged-request.js';
import { UpstreamRequest } from '../bridge/upstream-request.js';
import { badResult } from '../eras/era.js';
import { eraOf } from '../eras/eras.js';
import { type Exchange, invalidParams, isFailure, type RpcFailure } from '../exchange.js';
import type { LogLevels } from '../listening/log-levels.js';
import {
  ambiguousUri,
  callFailure,
  type FailureContext,
  requestFailure,
  translateError,
  unknownUri,
} from '../messages/failures.js';
import { readMeta } from '../messages/request-meta.js';
import type { Upstreams } from '../upstreams.js';
import { type AmbiguousResource, isAmbiguous } from '../views/tool-names.js';
import { uriCharsMax } from '../views/uri-templates.js';
import type { ToolTarget, View } from '../views/view.js';
import type { Views } from '../views/views.js';
import type { ServerInfoCache } from './capabilities.js';

export interface RelayContext {
  readonly upstreams: Upstreams;
  readonly bridge: Bridge;
  readonly views: Views;
  readonly levels: LogLevels;
  readonly servers: ServerInfoCache;
  /** Whether no key and no role exists now. Only then may one caller's result be cached for all. */
  readonly mayBePublic: () => boolean;
  /** Receives internal errors. The client gets a generic error. */
  readonly onProblem: (error: unknown) => void;
}

const callKeys = ['name', 'arguments', '_meta', 'inputResponses', 'requestState'] as const;
const hopKeys = ['_meta', 'inputResponses', 'requestState'] as const;
/** Includes `name`, `uri` and `ref`, so that a request with two of the same is refused. */
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
  passthrough(exchange: Exchange, { target: kind, mayRequireInput }: Method): void {
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
    const mayBePublic = this.#context.mayBePublic();
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

interface PassthroughTarget {
  readonly server: string;
  readonly edits: MemberEdits;
  /** True if a server that is not listed yet may be a better target. */
  readonly isGuess?: boolean;
}

type Finder = (view: View, params: Buffer, exchange: Exchange) => PassthroughTarget | RpcFailure;

const finders: Readonly<Record<NonNullable<Method['target']>, Finder>> = {
  prompt: (view, params) => {
    const name = memberString(params, 'name');
    if (name === undefined) return invalidParams('params.name must be a string');
    const entry = view.findPrompt(name);
    if (entry) return { server: entry.server, edits: [['name', JSON.stringify(entry.key)]] };
    return onlyServer(view) ?? invalidParams(`unknown prompt: ${name.slice(0, nameCharsShown)}`);
  },
  resource: (view, params, { client }) => {
    const uri = memberString(params, 'uri');
    if (uri === undefined) return invalidParams('params.uri must be a string');
    const found = view.findResource(uri);
    if (!found || isAmbiguous(found)) return noTarget(uri, found, client.era);
    const { server, isByTemplate: isGuess = false } = found;
    return { server, isGuess, edits: found.uri === uri ? [] : [['uri', JSON.stringify(found.uri)]] };
  },
  reference: (view, params) => {
    const [ref] = uniqueMembers(params, ['ref']) ?? [];
    const type = ref && memberString(ref, 'type');
    if (!ref || type === undefined) return invalidParams('params.ref must be an object with a type');
    return type === 'ref/prompt' ? promptReference(view, ref) : resourceReference(view, ref);
  },
};

const findTarget = (kind: Method['target'], ...args: Parameters<Finder>): PassthroughTarget | RpcFailure =>
  finders[kind as NonNullable<Method['target']>](...args);

function promptReference(view: View, ref: Buffer): PassthroughTarget | RpcFailure {
  const name = memberString(ref, 'name');
  const entry = name === undefined ? undefined : view.findPrompt(name);
  if (!entry) return (name !== undefined && onlyServer(view)) || invalidParams('unknown prompt in params.ref');
  return withReference(entry.server, editMembers(ref, [['name', JSON.stringify(entry.key)]]));
}

function resourceReference(view: View, ref: Buffer): PassthroughTarget | RpcFailure {
  const uri = memberString(ref, 'uri');
  const found = uri === undefined ? undefined : view.findResource(uri);
  if (uri === undefined || !found) return invalidParams('unknown resource in params.ref');
  if (isAmbiguous(found)) return ambiguousUri(uri, found.servers);
  return withReference(found.server, found.uri === uri ? ref : editMembers(ref, [['uri', JSON.stringify(found.uri)]]));
}

/** The error for a resource of no server, or of several servers. */
export function noTarget(uri: string, found: AmbiguousResource | undefined, era: string): RpcFailure {
  if (found) return ambiguousUri(uri, found.servers);
  return uri.length > uriCharsMax
    ? invalidParams(`params.uri has more than ${uriCharsMax} characters; use the endpoint /mcp/<server>`)
    : unknownUri(uri, era);
}

const withReference = (server: string, ref: JsonText | undefined): PassthroughTarget | RpcFailure =>
  ref === undefined ? invalidParams('params.ref has a duplicate key') : { server, edits: [['ref', ref]] };

/** The server of a one-server endpoint, if its prompts were never listed: it may have the prompt. */
const onlyServer = (view: View): PassthroughTarget | undefined =>
  view.only !== undefined && !view.known(view.only)?.lists.has('prompts/list')
    ? { server: view.only, edits: [] }
    : undefined;
