/**
 * Writes the params of a request as text: what the era adds to `_meta`, the progress token, and what a relayed request carries.
 * Not here: what a relayed request may carry; the relay answers for that (host/host-interface.ts).
 *
 * Invariants: no line end of a caller gets into a message. No member of a caller replaces one that the era demands.
 */
import type { JsonText } from '../wire/frame.js';
import { type MetaEdits, spliceMeta } from '../wire/json-edit.js';
import { eachMember, readString } from '../wire/json-scan.js';
import { toBuffer } from '../wire/json-text.js';

/** What an era adds to `_meta` of every request. `capabilities`: one JSON object that replaces our own. */
export interface RequestMeta {
  /** To be joined with other members. */
  members(capabilities?: string): string;
  /** To be spliced into params that exist. */
  edits(capabilities?: string): MetaEdits;
}

/** Members are JSON without the braces around it. */
export interface RelayedParams {
  /** Further members of `_meta`. */
  readonly meta?: string | undefined;
  /** Further members of `params`. */
  readonly members?: string | undefined;
  /** Client capabilities to declare instead of ours, where the era declares them: one JSON object. */
  readonly capabilities?: string | undefined;
}

/** The members of `_meta` of a request, as JSON text; empty for none. */
export function metaMembers(
  meta: RequestMeta | undefined,
  token: number | undefined,
  relay: RelayedParams | undefined,
): string {
  const own = meta === undefined ? '' : meta.members(capabilitiesOf(relay));
  const progress = token === undefined ? '' : `"progressToken":${token}`;
  return joined(relay?.meta ? onOneLine(relay.meta) : '', joined(own, progress));
}

/** The same for params that exist. */
export function metaEdits(
  meta: RequestMeta | undefined,
  token: number | undefined,
  relay: RelayedParams | undefined,
): MetaEdits {
  const own = meta?.edits(capabilitiesOf(relay)) ?? [];
  const progress: MetaEdits = token === undefined ? [] : [['progressToken', String(token)]];
  return relay?.meta ? [...editsOf(onOneLine(relay.meta)), ...own, ...progress] : [...own, ...progress];
}

/** The params of a call, written in one go instead of spliced. */
export function callParams(
  meta: RequestMeta | undefined,
  name: string,
  args: JsonText | undefined,
  token?: number,
  relay?: RelayedParams,
): JsonText {
  const members = metaMembers(meta, token, relay);
  const named = `"name":${JSON.stringify(name)}`;
  const start = members === '' ? `{${named}` : `{"_meta":{${members}},${named}`;
  const head = relay?.members ? `${start},${onOneLine(relay.members)}` : start;
  if (args === undefined) return `${head}}`;
  if (typeof args === 'string') return `${head},"arguments":${args}}`;
  return Buffer.concat([Buffer.from(`${head},"arguments":`), args, closingBrace]);
}

/** The params of any other request. */
export function requestParams(
  meta: RequestMeta | undefined,
  params: JsonText | undefined,
  token: number | undefined,
  relay: RelayedParams | undefined,
): JsonText | undefined {
  const own = relay ? withMembers(params, relay.members) : params;
  if (!meta && token === undefined && !relay?.meta) return own;
  return spliceMeta(own === undefined ? undefined : toBuffer(own), metaEdits(meta, token, relay));
}

/** Params with further members in front. */
export function withMembers(params: JsonText | undefined, members: string | undefined): JsonText | undefined {
  if (!members) return params;
  const added = onOneLine(members);
  if (params === undefined) return `{${added}}`;
  const bytes = toBuffer(params);
  const open = bytes.indexOf(0x7b) + 1;
  const rest = bytes.subarray(open);
  const isEmpty = rest.toString('latin1').trim() === '}';
  return Buffer.concat([bytes.subarray(0, open), Buffer.from(isEmpty ? added : `${added},`), rest]);
}

const closingBrace = Buffer.from('}');

const joined = (a: string, b: string): string => (a === '' ? b : b === '' ? a : `${a},${b}`);

const capabilitiesOf = (relay: RelayedParams | undefined): string | undefined =>
  relay?.capabilities ? onOneLine(relay.capabilities) : undefined;

/** Between members a line end is white space, and JSON strings cannot contain one: a space means the same. */
const onOneLine = (text: string): string => text.replace(/[\r\n]/g, ' ');

function editsOf(members: string): [string, string][] {
  const bytes = Buffer.from(`{${members}}`);
  const edits: [string, string][] = [];
  eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    edits.push([readString(bytes, keyStart, keyEnd), bytes.toString('utf8', valueStart, valueEnd)]);
  });
  return edits;
}
