/**
 * Definitions for the tests of pins: samples of each kind, equivalent spellings, and mutations.
 */
import { isDeepStrictEqual } from 'node:util';
import { type Random, randomInt } from '../../src/kernel/random.js';
import type { PinKind } from '../../src/policy/pin-hash.js';
import type { PinItem } from '../../src/policy/pins.js';
import { memberString } from '../../src/wire/json-members.js';

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export const sampleTool: { [key: string]: Json } = {
  name: 'get_issue',
  title: 'Get an issue',
  description: 'Reads one issue / its comments — "as is" 🐎.',
  inputSchema: {
    type: 'object',
    properties: {
      id: { type: 'integer', minimum: 1, 'x-mcp-header': 'Issue-Id' },
      labels: { type: 'array', items: { type: 'string', enum: ['bug', 'idea'] } },
    },
    required: ['id', 'labels'],
  },
  outputSchema: { type: 'object', properties: { body: { type: 'string' }, score: { type: 'number', maximum: 0.5 } } },
  annotations: { title: 'Issue', readOnlyHint: true, openWorldHint: false },
  icons: [{ src: 'https://example.com/i.png', sizes: ['48x48', 'any'] }],
  _meta: { 'example.com/tier': 2, flags: [true, null, 1e21] },
};

export const samples: Readonly<Record<PinKind, Json>> = {
  tool: sampleTool,
  prompt: {
    name: 'review',
    title: 'Review',
    arguments: [
      { name: 'code', description: 'The code', required: true },
      { name: 'tone', required: false },
    ],
  },
  resource: { uri: 'file:///a.txt', name: 'a', size: 12, annotations: { audience: ['user'], priority: 0.5 } },
  resourceTemplate: { uriTemplate: 'file:///{path}', name: 'files', description: 'Any file', mimeType: 'text/plain' },
  instructions: 'Call get_issue before anything else.',
};

const keys = {
  tool: 'name',
  prompt: 'name',
  resource: 'uri',
  resourceTemplate: 'uriTemplate',
  instructions: '',
} as const;

/** The definition as an item of a list. */
export function itemOf(kind: PinKind, text: string): PinItem {
  const raw = Buffer.from(text);
  return { key: kind === 'instructions' ? kind : (memberString(raw, keys[kind]) ?? ''), raw };
}

export const toolItem = (part: { [key: string]: Json } = {}): PinItem =>
  itemOf('tool', JSON.stringify({ ...sampleTool, ...part }));

const pick = <T>(random: Random, from: readonly T[]): T => from[randomInt(random, 0, from.length - 1)] as T;

export function shuffled<T>(random: Random, from: readonly T[]): T[] {
  return from
    .map((value) => ({ value, rank: random() }))
    .sort((a, b) => a.rank - b.rank)
    .map(({ value }) => value);
}

/** The same value in another spelling: order of keys, white space, escapes, numbers. */
export function reencoded(random: Random, value: Json): string {
  const gap = () => pick(random, ['', '', ' ', '\n', '\t ', '\r\n']);
  const write = (part: Json): string => {
    if (typeof part === 'string') return spelled(random, part);
    if (typeof part === 'number') return numbered(random, part);
    if (part === null || typeof part === 'boolean') return String(part);
    if (Array.isArray(part)) return `[${gap()}${part.map(write).join(`${gap()},${gap()}`)}${gap()}]`;
    const members = shuffled(random, Object.entries(part));
    const texts = members.map(([key, member]) => `${spelled(random, key)}${gap()}:${gap()}${write(member)}`);
    return `{${gap()}${texts.join(`${gap()},${gap()}`)}${gap()}}`;
  };
  return write(value);
}

function spelled(random: Random, text: string): string {
  let out = '';
  for (const sign of text) {
    if (random() < 0.1) for (let i = 0; i < sign.length; i++) out += escaped(sign.charCodeAt(i));
    else if (sign === '/' && random() < 0.5) out += '\\/';
    else out += JSON.stringify(sign).slice(1, -1);
  }
  return `"${out}"`;
}

const escaped = (code: number): string => `\\u${code.toString(16).padStart(4, '0')}`;

function numbered(random: Random, value: number): string {
  const plain = String(value);
  if (plain.includes('e')) return pick(random, [plain, plain.replace('+', ''), plain.replace('e', 'E')]);
  return pick(random, [plain, plain.includes('.') ? `${plain}0` : `${plain}.0`, `${plain}e0`, `${plain}E+0`]);
}

/** Omits default hints or adds them, without changing the meaning. */
export function withOtherSilence(random: Random, tool: { [key: string]: Json }): { [key: string]: Json } {
  const hints = { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true };
  const annotations = { ...(tool.annotations as { [key: string]: Json } | undefined) };
  for (const [hint, value] of Object.entries(hints)) {
    if (annotations[hint] === undefined && random() < 0.5) annotations[hint] = value;
    else if (annotations[hint] === value && random() < 0.5) delete annotations[hint];
  }
  const { annotations: _, ...rest } = tool;
  return Object.keys(annotations).length === 0 && random() < 0.5 ? rest : { ...rest, annotations };
}

/** Makes one random change that alters the meaning. */
export function mutated(random: Random, kind: PinKind, value: Json): Json {
  for (;;) {
    const copy = JSON.parse(JSON.stringify(value)) as Json;
    const after = mutateAt(random, copy);
    if (!isDeepStrictEqual(meaning(kind, after), meaning(kind, value))) return after;
  }
}

function mutateAt(random: Random, value: Json): Json {
  if (value === null || typeof value !== 'object') return otherScalar(random, value);
  const places = Array.isArray(value) ? value.map((_, i) => String(i)) : Object.keys(value);
  const bag = value as { [key: string]: Json };
  const place = places.length > 0 ? pick(random, places) : undefined;
  const dice = random();
  if (place === undefined || dice < 0.08) {
    if (Array.isArray(value)) value.push('added');
    else bag[`added${randomInt(random, 0, 99)}`] = pick(random, [true, null, 'x', 0, {}, []]);
  } else if (dice < 0.16) {
    if (Array.isArray(value)) value.splice(Number(place), 1);
    else delete bag[place];
  } else if (dice < 0.22 && Array.isArray(value)) {
    value.reverse();
  } else if (dice < 0.22) {
    bag[`${place}_`] = bag[place] as Json;
    delete bag[place];
  } else {
    bag[place] = mutateAt(random, bag[place] as Json);
  }
  return value;
}

function otherScalar(random: Random, value: null | boolean | number | string): Json {
  if (typeof value === 'boolean') return pick<Json>(random, [!value, null, String(value)]);
  if (typeof value === 'number') return pick<Json>(random, [value + 1, -value - 1, value / 4, String(value)]);
  if (value === null) return pick<Json>(random, [false, 0, '', {}]);
  const at = randomInt(random, 0, value.length);
  const added = pick(random, [' ', '\u200b', 'x', '\n', '"', '\u0000', '\ud800', '️']);
  return pick<Json>(random, [`${value.slice(0, at)}${added}${value.slice(at)}`, value.slice(1), `${value} `, null]);
}

/** The meaning of a definition, computed independently of the code under test. */
function meaning(kind: PinKind, value: Json): Json {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return value;
  const { annotations = {}, ...rest } = value;
  if (annotations === null || typeof annotations !== 'object' || Array.isArray(annotations)) return value;
  const silence = { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true };
  return { ...rest, annotations: kind === 'tool' ? { ...silence, ...annotations } : annotations };
}
