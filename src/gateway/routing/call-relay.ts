/**
 * Tool calls: from the name a client knows to the server that has the tool, and back in the client's words.
 * This is the path that everything else waits for: one look at the params, no parsing, no copies.
 * Not here: whether the call may be made (host), questions of the server to the client (bridge/).
 * Invariant: every exchange that is taken is ended, once.
 */
import type { ToolResult } from '../../host/host-interface.js';
import { isHostError } from '../../kernel/errors.js';
import type { JsonText } from '../../wire/frame.js';
import { isObject, stringOf, uniqueMembers } from '../../wire/json-members.js';
import { RPC } from '../../wire/rpc-codes.js';
import type { Bridge, BridgedRequest, Relayed } from '../bridge/bridged-request.js';
import { type Exchange, isFailure, type RpcFailure } from '../exchange.js';
import type { LogLevels } from '../listening/log-levels.js';
import { callFailure, type Place, translateError } from '../messages/failures.js';
import { readMeta } from '../messages/request-meta.js';
import { isCacheable, translateResult } from '../messages/translate-result.js';
import type { Upstreams } from '../upstreams.js';
import type { ToolTarget } from '../views/view.js';
import type { Views } from '../views/views.js';
import { RelayRoute } from './relay-route.js';
import type { ServerInfoCache } from './server-info.js';

export interface RelayParts {
  readonly upstreams: Upstreams;
  readonly bridge: Bridge;
  readonly views: Views;
  readonly levels: LogLevels;
  readonly facts: ServerInfoCache;
  /** Whether there is neither a key nor a role, now: then what one caller reads may be kept for all. */
  readonly mayBePublic: () => boolean;
  /** A mistake of ours, which its client was told as an internal error. */
  readonly onProblem: (error: unknown) => void;
}

const method = 'tools/call';
const keys = ['name', 'arguments', '_meta', 'inputResponses', 'requestState'] as const;
const noArguments = Buffer.from('{}');
const nameCharsShown = 200;

export const invalidParams = (message: string): RpcFailure => ({ code: RPC.invalidParams, message });

export function relayCall(exchange: Exchange, parts: RelayParts): void {
  const members = exchange.params && uniqueMembers(exchange.params, keys);
  if (!members) return exchange.fail(invalidParams('params must be an object that says everything once'));
  const name = members[0] && stringOf(members[0]);
  if (name === undefined) return exchange.fail(invalidParams('name must be a string'));
  const args = members[1] ?? noArguments;
  if (!isObject(args)) return exchange.fail(invalidParams('arguments must be an object'));
  const { client } = exchange;
  const view = parts.views.of(client.endpoint, client.principal);
  const target = view.findTool(name);
  if (target) return send(exchange, target, args, members, parts);
  // At boot not every tool is known yet: nobody is told that there is none before they could be.
  const sight = view.sight();
  if (!sight) return exchange.fail(unknownTool(name));
  sight.then(
    guarded(exchange, parts, () => {
      const found = parts.views.of(client.endpoint, client.principal).findTool(name);
      if (found) send(exchange, found, args, members, parts);
      else exchange.fail(unknownTool(name));
    }),
    () => exchange.fail(unknownTool(name)),
  );
}

/** For a tick of its own, in which nobody else would catch a mistake of ours: it would be the end of the process. */
export const guarded =
  (exchange: Exchange, { onProblem }: RelayParts, run: () => void): (() => void) =>
  () => {
    try {
      run();
    } catch (error) {
      onProblem(error);
      exchange.fail({ code: RPC.internalError, message: 'internal error' });
    }
  };

function send(
  exchange: Exchange,
  { server, tool }: ToolTarget,
  args: Buffer,
  members: readonly (Buffer | undefined)[],
  parts: RelayParts,
): void {
  const { upstreams, facts } = parts;
  const meta = readMeta(members[2]);
  if (!meta) return exchange.fail(invalidParams('_meta must be an object that says everything once'));
  const isModern = exchange.client.era === 'modern';
  const state = isModern ? members[4] : undefined;
  const requestState = state && stringOf(state);
  if (state && requestState === undefined) return exchange.fail(invalidParams('requestState must be a string'));
  const route = new RelayRoute(exchange, meta, facts.of(server), parts.levels);
  const request: BridgedRequest = {
    exchange,
    server,
    send: (added) => upstreams.call(server, tool, args, route.optionsWith(added)).then(relayedResult),
    identity: () => identityOf(method, server, tool, args),
    serverEra: facts.of(server).knownEra,
    inputResponses: isModern ? members[3] : undefined,
    requestState,
    onMoved: (to) => route.moveTo(to),
  };
  relay(request, { method, tool }, parts, (error, place) => {
    const told = callFailure(error, place);
    if ('result' in told) exchange.succeed(told.result);
    else exchange.fail(told.failure);
  });
}

const relayedResult = ({ bytes, era }: ToolResult): Relayed => ({ kind: 'result', bytes, era });

/** What makes a request this one and no other. */
export const identityOf = (...parts: readonly JsonText[]): Buffer =>
  Buffer.concat(parts.flatMap((part) => [typeof part === 'string' ? Buffer.from(part) : part, nul]));

const nul = Buffer.from([0]);

/** Sends it through the bridge, and ends the exchange with what comes back. */
export function relay(
  request: BridgedRequest,
  what: { readonly method: string; readonly tool?: string },
  parts: RelayParts,
  failed: (error: unknown, place: Place) => void,
): void {
  const { exchange, server } = request;
  const placeNow = (): Place => {
    const { era, info } = parts.facts.of(server);
    return { ...what, clientEra: exchange.client.era, server, serverEra: era, serverInfo: info };
  };
  const onError = (error: unknown) => {
    if (!isHostError(error)) parts.onProblem(error);
    failed(error, placeNow());
  };
  let relayed: ReturnType<typeof parts.bridge.relay>;
  try {
    relayed = parts.bridge.relay(request);
  } catch (error) {
    return onError(error);
  }
  const onAnswer = ({ kind, bytes, era }: Relayed) => {
    const { client } = exchange;
    if (kind === 'error') return exchange.fail(translateError(bytes, { ...placeNow(), serverEra: era }));
    const { method } = what;
    if (era === client.era && isObject(bytes) && !isCacheable(method)) return exchange.succeed(bytes);
    const serverInfo = parts.facts.of(server).info;
    const mayBePublic = parts.mayBePublic();
    const worded = translateResult(bytes, { from: era, to: client.era, method, serverInfo, mayBePublic });
    if (isFailure(worded)) exchange.fail(worded);
    else exchange.succeed(...worded);
  };
  relayed.then((answer) => {
    try {
      onAnswer(answer);
    } catch (error) {
      onError(error);
    }
  }, onError);
}

const unknownTool = (name: string): RpcFailure => invalidParams(`unknown tool: ${name.slice(0, nameCharsShown)}`);
