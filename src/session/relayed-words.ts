/**
 * What a relayed request says beside its own words, written into its params as text.
 * Not here: what may be among it; whoever hands it over answers for that (host/host-interface.ts).
 *
 * Invariants: a line end never gets into a message, whatever the caller wrote between its members; what the era asks for is
 * ours, and no member of a caller's replaces it.
 */

import type { JsonText } from '../wire/frame.js';
import type { MetaEdits } from '../wire/json-edit.js';
import { eachMember, readString } from '../wire/json-scan.js';
import { toBuffer } from '../wire/json-text.js';
import type { ClientTexts } from './client-identity.js';
import { META } from './versions.js';

/** Members are JSON without the braces around it. */
export interface RelayedWords {
  /** Further members of `_meta`. */
  readonly meta?: string | undefined;
  /** Further members of `params`. */
  readonly members?: string | undefined;
  /** What a modern server is told that its client can do, instead of what we can: one JSON object. */
  readonly capabilities?: string | undefined;
}

/** The members of `_meta` of a request, as JSON text; empty for none. `texts` only for a modern server. */
export function metaMembers(
  texts: ClientTexts | undefined,
  token: number | undefined,
  relay: RelayedWords | undefined,
): string {
  const own =
    texts === undefined
      ? ''
      : relay?.capabilities
        ? texts.metaMembersWith(onOneLine(relay.capabilities))
        : texts.metaMembers;
  const progress = token === undefined ? '' : `"progressToken":${token}`;
  return joined(relay?.meta ? onOneLine(relay.meta) : '', joined(own, progress));
}

/** The same for params that are there already. */
export function metaEdits(
  texts: ClientTexts | undefined,
  token: number | undefined,
  relay: RelayedWords | undefined,
): MetaEdits {
  const { capabilities } = relay ?? {};
  const own: MetaEdits = (texts?.metaEdits ?? []).map(([key, json]) =>
    key === META.clientCapabilities && capabilities ? [key, onOneLine(capabilities)] : [key, json],
  );
  const progress: MetaEdits = token === undefined ? [] : [['progressToken', String(token)]];
  return relay?.meta ? [...editsOf(onOneLine(relay.meta)), ...own, ...progress] : [...own, ...progress];
}

/** The params of a call, written in one go: what we build ourselves needs no splicing. */
export function callParams(name: string, args: JsonText | undefined, meta: string, members?: string): JsonText {
  const named = `"name":${JSON.stringify(name)}`;
  const start = meta === '' ? `{${named}` : `{"_meta":{${meta}},${named}`;
  const head = members ? `${start},${onOneLine(members)}` : start;
  if (args === undefined) return `${head}}`;
  if (typeof args === 'string') return `${head},"arguments":${args}}`;
  return Buffer.concat([Buffer.from(`${head},"arguments":`), args, closingBrace]);
}

/** Params of any request, with further members in front. */
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

/** Between members a line end is white space, and within a string it cannot stand: either way a space means the same. */
const onOneLine = (text: string): string => text.replace(/[\r\n]/g, ' ');

function editsOf(members: string): [string, string][] {
  const bytes = Buffer.from(`{${members}}`);
  const edits: [string, string][] = [];
  eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    edits.push([readString(bytes, keyStart, keyEnd), bytes.toString('utf8', valueStart, valueEnd)]);
  });
  return edits;
}
