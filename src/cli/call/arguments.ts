/**
 * Converts the arguments of `hostler call` from the command line to the JSON text that is sent.
 * Not here: the schema of the tool (schema-types.ts), its signature (signature.ts).
 * Invariants: JSON is sent as written, so a 64-bit integer keeps every digit. A value of the wrong type is refused with its name
 * before anything is sent.
 */
import { HostError } from '../../kernel/errors.js';
import { didYouMean } from '../../kernel/nearest-name.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import {
  type Kind,
  kindOfValue,
  kindsOf,
  propertiesOf,
  requiredOf,
  resolved,
  type Schema,
  valuesOf,
} from './schema-types.js';

/** A request is one frame of the control socket, which has at most 1 MiB. */
const charsMax = 900_000;
const shownChars = 64;

interface Argument {
  readonly name: string;
  readonly text: string;
  /** True for `name:=json`. */
  readonly isJson: boolean;
}

export interface WrittenArguments {
  /** One JSON object. Other arguments override its members. */
  readonly json: string | undefined;
  readonly members: readonly Argument[];
}

const pair = /^([^=]*?)(:?)=([\s\S]*)$/;

export const isMember = (word: string): boolean => /^[^={]+=/.test(word);

/** `words` follow the name of the tool; `options` are the values of `--arg`, which are never files. */
export function writtenArguments(
  words: readonly string[],
  options: readonly string[],
  read: (file: string) => string,
): WrittenArguments {
  const members = words.filter(isMember).map((word) => memberOf(word, read));
  const rest = words.filter((word) => !isMember(word));
  if (rest.length > 1) throw refused(`'${shown(rest[1] ?? '')}' is an unexpected argument`, 'write name=value');
  const [json] = rest;
  if (json !== undefined) objectOf(json);
  return { json, members: [...members, ...options.map(optionOf)] };
}

function memberOf(word: string, read: (file: string) => string): Argument {
  const [, name = '', colon, text = ''] = pair.exec(word) ?? [];
  if (colon === ':') return { name, text, isJson: true };
  return { name, text: text.startsWith('@') ? read(text.slice(1)) : text, isJson: false };
}

function optionOf(option: string): Argument {
  const at = option.indexOf('=');
  if (at < 1) throw refused('--arg needs a name and a value', 'write --arg name=value');
  return { name: option.slice(0, at), text: option.slice(at + 1), isJson: false };
}

/** `schema`: the input schema of the tool; undefined if it is not known. */
export async function argumentsText({ json, members }: WrittenArguments, schema: Schema | undefined): Promise<string> {
  const text = members.length === 0 ? (json ?? '{}') : await joined(json, members, schema ?? {});
  if (text.length > charsMax)
    throw refused(`the arguments have ${text.length} characters; at most ${charsMax} are sent`, 'send less');
  return text;
}

/** Required parameters that are not given. Arguments given as one JSON object are sent even without them. */
export const missingArguments = ({ json, members }: WrittenArguments, schema: Schema): string[] =>
  json === undefined ? requiredOf(schema).filter((name) => !members.some((member) => member.name === name)) : [];

async function joined(json: string | undefined, members: readonly Argument[], schema: Schema): Promise<string> {
  const all = json === undefined ? new Map<string, string>() : await rawMembers(json);
  const given = new Set<string>();
  for (const member of members) {
    if (given.has(member.name)) throw refused(`${shown(member.name)} is given twice`, 'give it once');
    given.add(member.name);
    all.set(member.name, valueText(member, schema));
  }
  return `{${[...all].map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(',')}}`;
}

/** The members of a valid JSON object, each value as written. */
async function rawMembers(json: string): Promise<Map<string, string>> {
  const { parseTree } = await import('jsonc-parser');
  const members = new Map<string, string>();
  for (const { children: [name, value] = [] } of parseTree(json)?.children ?? [])
    if (name && value) members.set(String(name.value), json.slice(value.offset, value.offset + value.length));
  return members;
}

function objectOf(json: string): void {
  try {
    if (kindOfValue(JSON.parse(json)) === 'object') return;
  } catch {
    // The error is thrown below.
  }
  throw refused(
    'the arguments are neither a JSON object nor name=value',
    `write them like '{"message":"hello"}', or like message=hello`,
  );
}

function valueText({ name, text, isJson }: Argument, schema: Schema): string {
  const properties = propertiesOf(schema);
  if (schema.additionalProperties === false && !Object.hasOwn(properties, name)) {
    const known = Object.keys(properties);
    const hint = `${didYouMean(name, known)}it has: ${known.map(shown).join(', ') || 'none'}`;
    throw refused(`the tool has no parameter '${shown(name)}'`, hint);
  }
  const own = Object.hasOwn(properties, name) ? properties[name] : undefined;
  const kinds = kindsOf(own, schema);
  const value = isJson ? jsonText(name, text, kinds) : typedText(name, text, kinds);
  const allowed = valuesOf(resolved(own, schema) ?? {});
  if (allowed && !allowed.some((each) => JSON.stringify(each) === value)) {
    const texts = allowed.map((each) => shown(String(each)));
    throw refused(
      `${shown(name)}: '${shown(text)}' is not allowed`,
      `${didYouMean(text, texts)}it is one of ${texts.join(', ')}`,
    );
  }
  return value;
}

/** Text stays text where the schema allows it: a zip code keeps its leading zero. */
function typedText(name: string, text: string, kinds: ReadonlySet<Kind> | undefined): string {
  if (kinds?.has('string')) return JSON.stringify(text);
  const written = text.trim();
  const kind = kindOfText(written);
  if (kinds === undefined) return kind === undefined ? JSON.stringify(text) : written;
  if (kind === undefined || !fits(kind, kinds)) throw wrongType(name, text, kinds);
  return written;
}

function jsonText(name: string, text: string, kinds: ReadonlySet<Kind> | undefined): string {
  const kind = kindOfText(text);
  if (kind === undefined)
    throw refused(`${shown(name)}: '${shown(text)}' is not JSON`, `${shown(name)}=... sends text`);
  if (kinds !== undefined && !fits(kind, kinds)) throw wrongType(name, text, kinds);
  return text;
}

const fits = (kind: Kind, kinds: ReadonlySet<Kind>): boolean =>
  kinds.has(kind) || (kind === 'integer' && kinds.has('number'));

/** The type of JSON text; undefined if it is not JSON. An integer may have more digits than a number of JavaScript. */
function kindOfText(json: string): Kind | undefined {
  try {
    const kind = kindOfValue(JSON.parse(json));
    return kind === 'number' && /^-?\d+$/.test(json.trim()) ? 'integer' : kind;
  } catch {
    return undefined;
  }
}

const article = (kind: string): string => `${/^[aeiou]/.test(kind) ? 'an' : 'a'} ${kind}`;

function wrongType(name: string, text: string, kinds: ReadonlySet<Kind>): HostError {
  const wanted = [...kinds].map((kind) => (kind === 'null' ? kind : article(kind))).join(' or ');
  const isStructure = kinds.has('array') || kinds.has('object');
  const hint = isStructure
    ? `write JSON, like ${shown(name)}:='${kinds.has('array') ? '["a"]' : '{"a":1}'}'`
    : `write ${wanted}`;
  return refused(`${shown(name)}: '${shown(text)}' is not ${wanted}`, hint);
}

const shown = (text: string): string => neutraliseLine(text, shownChars);

const refused = (what: string, hint: string): HostError =>
  new HostError('invalid_spec', what, { field: 'arguments', reason: 'usage', hint });
