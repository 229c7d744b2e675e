/**
 * Writes the params of a request as text: the members that the era adds to `_meta`, the progress token, and relayed members.
 * Not here: the check of relayed members, which is the duty of the relay (host/host-interface.ts).
 *
 * Invariants: no line end of a caller gets into a message. No member of a caller replaces one that the era requires.
 */
import type { CallRelay } from '../policy/operation.js';
import type { JsonText } from '../wire/channel.js';
import { type MetaEdits, spliceMeta, toBuffer } from '../wire/json-edit.js';
import { eachMember, readString } from '../wire/json-scan.js';

/** Members that an era adds to `_meta` of every request. `capabilities`: a JSON object that replaces Hostler's own. */
export interface RequestMeta {
  members(capabilities?: string): string;
  edits(capabilities?: string): MetaEdits;
}

export type RelayedParams = Pick<CallRelay, 'meta' | 'members' | 'capabilities'>;

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

/** The same members, as edits of existing params. */
export function metaEdits(
  meta: RequestMeta | undefined,
  token: number | undefined,
  relay: RelayedParams | undefined,
): MetaEdits {
  const own = meta?.edits(capabilitiesOf(relay)) ?? [];
  const progress: MetaEdits = token === undefined ? [] : [['progressToken', String(token)]];
  return relay?.meta ? [...editsOf(onOneLine(relay.meta)), ...own, ...progress] : [...own, ...progress];
}

/** Params of a call, written as new text instead of edits of existing params. */
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

/** Adds members in front of the params. */
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

/** A JSON string contains no raw line end, so a space in its place does not change the value. */
const onOneLine = (text: string): string => text.replace(/[\r\n]/g, ' ');

function editsOf(members: string): [string, string][] {
  const bytes = Buffer.from(`{${members}}`);
  const edits: [string, string][] = [];
  eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    edits.push([readString(bytes, keyStart, keyEnd), bytes.toString('utf8', valueStart, valueEnd)]);
  });
  return edits;
}
