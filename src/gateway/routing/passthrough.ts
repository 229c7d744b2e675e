/**
 * `prompts/get`, `resources/read` and `completion/complete`: to the server that is meant, in its own names, and back.
 * Not here: tool calls (call-relay.ts), lists (views/prepared-list.ts).
 * Invariant: of what the client wrote only names and the envelope of its hop are changed.
 */
import type { Era } from '../../wire/channel.js';
import type { JsonText } from '../../wire/frame.js';
import { editMembers, type MemberEdits } from '../../wire/json-edit.js';
import { memberString, stringOf, uniqueMembers } from '../../wire/json-members.js';
import type { BridgedRequest } from '../bridge/bridged-request.js';
import type { Exchange, RpcFailure } from '../exchange.js';
import { ambiguousUri, requestFailure, unknownUri } from '../messages/failures.js';
import { readMeta } from '../messages/request-meta.js';
import { type AmbiguousResource, isAmbiguous } from '../views/hostler-uris.js';
import { uriCharsMax } from '../views/uri-templates.js';
import type { View } from '../views/view.js';
import { guarded, identityOf, invalidParams, type RelayParts, relay } from './call-relay.js';
import { RelayRoute } from './relay-route.js';

/** Where a request goes, and the members that are written differently there. */
interface Target {
  readonly server: string;
  readonly edits: MemberEdits;
  /** A server that was not seen yet may have a better claim to it. */
  readonly isGuess?: boolean;
}

type Aim = (view: View, params: Buffer, exchange: Exchange) => Target | RpcFailure;

const keys = ['name', 'uri', 'ref', '_meta', 'inputResponses', 'requestState'] as const;
const nameCharsShown = 200;
/** Written anew for the server's hop. */
const envelope: MemberEdits = [
  ['_meta', undefined],
  ['inputResponses', undefined],
  ['requestState', undefined],
];

const aims: Readonly<Record<string, Aim>> = {
  'prompts/get': (view, params) => {
    const name = memberString(params, 'name');
    if (name === undefined) return invalidParams('name must be a string');
    const entry = view.findPrompt(name);
    if (entry) return { server: entry.server, edits: [['name', JSON.stringify(entry.key)]] };
    return unlisted(view) ?? invalidParams(`unknown prompt: ${name.slice(0, nameCharsShown)}`);
  },
  'resources/read': (view, params, { client }) => {
    const uri = memberString(params, 'uri');
    if (uri === undefined) return invalidParams('uri must be a string');
    const found = view.findResource(uri);
    if (!found || isAmbiguous(found)) return noTarget(uri, found, client.era);
    const { server, isByTemplate: isGuess = false } = found;
    return { server, isGuess, edits: found.uri === uri ? [] : [['uri', JSON.stringify(found.uri)]] };
  },
  'completion/complete': (view, params) => {
    const [ref] = uniqueMembers(params, ['ref']) ?? [];
    const type = ref && memberString(ref, 'type');
    if (!ref || type === undefined) return invalidParams('ref must be an object with a type');
    return type === 'ref/prompt' ? promptRef(view, ref) : resourceRef(view, ref);
  },
};

export const isPassthrough = (method: string): boolean => Object.hasOwn(aims, method);

export function relayPassthrough(exchange: Exchange, parts: RelayParts): void {
  const { client, method, params } = exchange;
  const members = params && uniqueMembers(params, keys);
  if (!params || !members) return exchange.fail(invalidParams('params must be an object that says everything once'));
  const meta = readMeta(members[3]);
  if (!meta) return exchange.fail(invalidParams('_meta must be an object that says everything once'));
  const isModern = client.era === 'modern';
  const state = isModern ? members[5] : undefined;
  const requestState = state && stringOf(state);
  if (state && requestState === undefined) return exchange.fail(invalidParams('requestState must be a string'));
  const viewNow = () => parts.views.of(client.endpoint, client.principal);
  const aim = () => (aims[method] as Aim)(viewNow(), params, exchange);
  const go = (target: Target | RpcFailure): void => {
    if (!('server' in target)) return exchange.fail(target);
    const { server, edits } = target;
    const sent = editMembers(params, [...edits, ...envelope]);
    if (!sent) return exchange.fail(invalidParams('params must be an object that says everything once'));
    const route = new RelayRoute(exchange, meta, parts.facts.of(server), parts.levels);
    const request: BridgedRequest = {
      exchange,
      server,
      send: (added) => parts.upstreams.request(server, method, sent, route.optionsWith(added)),
      identity: () => identityOf(method, server, sent),
      serverEra: parts.facts.of(server).knownEra,
      inputResponses: isModern ? members[4] : undefined,
      requestState,
      onMoved: (to) => route.moveTo(to),
    };
    // A completion is never answered by a question.
    const through = method === 'completion/complete' ? { ...parts, bridge: straight } : parts;
    relay(request, { method }, through, (error, place) => exchange.fail(requestFailure(error, place)));
  };
  const target = aim();
  const sight = 'server' in target && !target.isGuess ? undefined : viewNow().sight();
  if (!sight) return go(target);
  sight.then(
    guarded(exchange, parts, () => go(aim())),
    guarded(exchange, parts, () => go(target)),
  );
}

const straight: RelayParts['bridge'] = { relay: ({ send }) => send({}) };

function promptRef(view: View, ref: Buffer): Target | RpcFailure {
  const name = memberString(ref, 'name');
  const entry = name === undefined ? undefined : view.findPrompt(name);
  if (!entry) return (name !== undefined && unlisted(view)) || invalidParams('unknown prompt in ref');
  return withRef(entry.server, editMembers(ref, [['name', JSON.stringify(entry.key)]]));
}

function resourceRef(view: View, ref: Buffer): Target | RpcFailure {
  const uri = memberString(ref, 'uri');
  const found = uri === undefined ? undefined : view.findResource(uri);
  if (uri === undefined || !found) return invalidParams('unknown resource in ref');
  if (isAmbiguous(found)) return ambiguousUri(uri, found.servers);
  return withRef(found.server, found.uri === uri ? ref : editMembers(ref, [['uri', JSON.stringify(found.uri)]]));
}

/** Why no server is asked for the resource. */
export function noTarget(uri: string, found: AmbiguousResource | undefined, era: Era): RpcFailure {
  if (found) return ambiguousUri(uri, found.servers);
  return uri.length > uriCharsMax
    ? invalidParams(`uri has more than ${uriCharsMax} characters; use the endpoint /mcp/<server>`)
    : unknownUri(uri, era);
}

const withRef = (server: string, ref: JsonText | undefined): Target | RpcFailure =>
  ref === undefined ? invalidParams('ref must say everything once') : { server, edits: [['ref', ref]] };

/** Of one server whose prompts were never read nobody can say that it has no such prompt. */
const unlisted = (view: View): Target | undefined =>
  view.only !== undefined && !view.known(view.only)?.lists.has('prompts/list')
    ? { server: view.only, edits: [] }
    : undefined;
