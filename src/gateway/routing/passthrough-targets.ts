/**
 * Finds the server of a forwarded request by the prompt, resource or reference that its params name, and the server's own name
 * for it.
 * Not here: tool calls and sending (relay.ts).
 */
import type { JsonText } from '../../wire/channel.js';
import { editMembers, type MemberEdits } from '../../wire/json-edit.js';
import { memberString, uniqueMembers } from '../../wire/json-members.js';
import type { PassthroughMethod } from '../../wire/methods.js';
import { type Exchange, invalidParams, type RpcFailure } from '../exchange.js';
import { ambiguousUri, unknownUri } from '../messages/failures.js';
import { type AmbiguousResource, isAmbiguous } from '../views/tool-names.js';
import { uriCharsMax } from '../views/uri-templates.js';
import type { View } from '../views/view.js';

const nameCharsShown = 200;

export interface PassthroughTarget {
  readonly server: string;
  readonly edits: MemberEdits;
  /** True if a server whose lists are not known yet may be a better target. */
  readonly isGuess?: boolean;
}

type Finder = (view: View, params: Buffer, exchange: Exchange) => PassthroughTarget | RpcFailure;

const finders: Readonly<Record<PassthroughMethod['target'], Finder>> = {
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

export const findTarget = (
  kind: PassthroughMethod['target'],
  ...args: Parameters<Finder>
): PassthroughTarget | RpcFailure => finders[kind](...args);

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
