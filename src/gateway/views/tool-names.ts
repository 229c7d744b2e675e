/**
 * The names at an endpoint of many servers: `<server>__<tool>` for tools and prompts, `hostler://` URIs for resources.
 * Not here: the content of lists (view.ts), names that the operator chose (config/tool-rules.ts).
 * Invariants for tools and prompts: names are unique, have at most 64 characters, and only characters that clients accept. A name
 * depends only on its server and tool, unless two names would be equal. Then each of them gets a hash, independent of their order.
 */
import { createHash } from 'node:crypto';
import { editMembers } from '../../wire/json-edit.js';
import { memberString } from '../../wire/json-members.js';

export interface PreferredName {
  readonly server: string;
  /** The server's own name. The hash covers server and tool. */
  readonly tool: string;
  /** The name of the tool, unless another tool prefers the same name. */
  readonly name: string;
}

/** The longest tool name that models accept. */
const nameCharsMax = 64;
const separator = '__';
/** Model providers refuse other characters, also dots. */
const foreign = /[^A-Za-z0-9_-]/gu;
const base32 = 'abcdefghijklmnopqrstuvwxyz234567';

/** Characters of the hash by the number of collisions so far. 40 bits prevent accidental collisions, not deliberate ones. */
const hashChars = [0, 8, 16, 52] as const;
const lastLevel = hashChars.length - 1;

export const prefixed = (server: string, tool: string): string => `${server}${separator}${tool}`;

const startLevel = ({ name }: PreferredName): number =>
  name.length <= nameCharsMax && name.search(foreign) < 0 ? 0 : 1;

/** The name before collisions are resolved. */
export const startName = (wanted: PreferredName): string => nameAt(wanted, startLevel(wanted));

/** Returns names in the order of `wanted`, whose server-tool pairs differ. `isPlain`: unique names are not changed. */
export function uniqueNames(wanted: readonly PreferredName[], isPlain = false): string[] {
  const levels: number[] = wanted.map((each) => (isPlain ? 0 : startLevel(each)));
  const names = wanted.map((each, i) => nameAt(each, levels[i] as number));
  for (;;) {
    const rivals = duplicates(names).filter((i) => (levels[i] as number) < lastLevel);
    if (rivals.length === 0) return names;
    for (const i of rivals) {
      levels[i] = (levels[i] as number) + 1;
      names[i] = nameAt(wanted[i] as PreferredName, levels[i] as number);
    }
  }
}

function nameAt(wanted: PreferredName, level: number): string {
  if (level === 0) return wanted.name;
  const length = hashChars[level] as number;
  const head = wanted.name.replace(foreign, '_').slice(0, nameCharsMax - 1 - length);
  return `${head}_${hashOf(wanted).slice(0, length)}`;
}

/** Hashes UTF-16, because names that differ only in unpaired surrogates are equal in UTF-8. */
function hashOf({ server, tool }: PreferredName): string {
  const digest = createHash('sha256')
    .update(Buffer.from(`${server}\0${tool}`, 'utf16le'))
    .digest();
  let text = '';
  let bits = 0;
  let value = 0;
  for (const byte of digest) {
    value = ((value << 8) | byte) & 0xffff;
    for (bits += 8; bits >= 5; bits -= 5) text += base32[(value >> (bits - 5)) & 31];
  }
  return bits > 0 ? text + base32[(value << (5 - bits)) & 31] : text;
}

/** The indexes of names that occur more than once. */
function duplicates(names: readonly string[]): number[] {
  const first = new Map<string, number>();
  const found = new Set<number>();
  for (const [i, name] of names.entries()) {
    const other = first.get(name);
    if (other === undefined) first.set(name, i);
    else found.add(other).add(i);
  }
  return [...found];
}

/**
 * URIs of the form `hostler://<server>/<uri>`. If two servers of an endpoint list the same URI or template, both are shown in
 * this form, and the plain URI is refused as ambiguous. A server's own `hostler://` URI is wrapped too, so that no server can
 * pose as another. The inner URI is not encoded: expanding a wrapped template must give the server's own URI.
 * Invariant: URIs inside results and links are not changed.
 */
const scheme = 'hostler://';

/** A server, and its own URI or template text. */
export interface ResourceTarget {
  readonly server: string;
  readonly uri: string;
  /** True if the URI only matches a template. A server that has never run may list the URI itself. */
  readonly isByTemplate?: boolean;
}

/** Result for a URI that several servers list, or that matches templates of several servers. */
export interface AmbiguousResource {
  readonly servers: readonly string[];
}

export const isAmbiguous = (found: ResourceTarget | AmbiguousResource): found is AmbiguousResource =>
  'servers' in found;

export const wrapUri = ({ server, uri }: ResourceTarget): string => `${scheme}${encodeURIComponent(server)}/${uri}`;

/** Schemes are case-insensitive. */
export const hasOurScheme = (uri: string): boolean =>
  uri.startsWith(scheme) || uri.slice(0, scheme.length).toLowerCase() === scheme;

/** Returns undefined for a text of another form. */
export function unwrapUri(text: string): ResourceTarget | undefined {
  if (!text.startsWith(scheme)) return undefined;
  const slash = text.indexOf('/', scheme.length);
  const uri = text.slice(slash + 1);
  if (slash < 0 || uri === '') return undefined;
  try {
    return { server: decodeURIComponent(text.slice(scheme.length, slash)), uri };
  } catch {
    return undefined;
  }
}

/** Wraps the URI in the params of an update, for a client that knows the resource by its wrapped URI. */
export function wrapParams(params: Buffer, server: string): Buffer {
  const uri = memberString(params, 'uri');
  return (
    (uri === undefined ? undefined : editMembers(params, [['uri', JSON.stringify(wrapUri({ server, uri }))]])) ?? params
  );
}
