/**
 * Checks the items of a list against a short table of what clients refuse. A client drops the whole list if its validator
 * refuses one item. So such an item is repaired if that is safe, and left out otherwise.
 * Not here: the use of the result (listings.ts), names at an endpoint of many servers (gateway/views/tool-names.ts).
 *
 * Invariants: an item without a fault keeps its bytes. A repair never makes a schema stricter, except that arguments are an
 * object, as the protocol says. Pins are compared with the text of the server, before any repair.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { ListedItem, ListMethod } from '../session/lists.js';
import { editMembers, type MemberEdits } from '../wire/json-edit.js';
import { isList, isObject, membersBytes, stringOf } from '../wire/json-members.js';
import { eachElement, eachMember } from '../wire/json-scan.js';
import type { ShownItem } from './catalog-server.js';

export interface ItemFault {
  /** Paths of the faulty members, such as `inputSchema.type`. Empty: only some clients need another text. */
  readonly fields: readonly string[];
  /** Undefined: the item is left out. */
  readonly item: ShownItem | undefined;
}

/** Returned by a rule if the item cannot be used. */
const unusable = Symbol('unusable');

/** Returns the value that clients accept: the same bytes, other bytes, or undefined to remove the member. */
type Rule = (value: Buffer | undefined, fault: (path: string) => void) => Buffer | undefined | typeof unusable;
type Rules = Readonly<Record<string, Rule>>;

const emptyObject = Buffer.from('{}');
const objectType = Buffer.from('"object"');
const anyArguments = Buffer.from('{"type":"object"}');

const only =
  (isRight: (value: Buffer) => boolean): Rule =>
  (value) =>
    value && isRight(value) ? value : undefined;
const within =
  (rules: Rules): Rule =>
  (value, fault) =>
    isObject(value) ? mended(value, rules, fault) : undefined;
const each =
  (isRight: (element: Buffer) => boolean) =>
  (value: Buffer): boolean =>
    isList(value) && elementsOf(value).every(isRight);

const isText = (value: Buffer): boolean => stringOf(value) !== undefined;
const isFlag = (value: Buffer): boolean => value[0] === 0x74 || value[0] === 0x66;
const isNumber = (value: Buffer): boolean => Number.isFinite(numberOf(value));
const isOneOf = (texts: readonly string[]) => (value: Buffer) => texts.includes(stringOf(value) ?? '');
const isDate = (value: Buffer): boolean =>
  /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(stringOf(value) ?? '');
const isShare = (value: Buffer): boolean => isNumber(value) && numberOf(value) >= 0 && numberOf(value) <= 1;
const isObjectWith =
  (required: string, optional: Readonly<Record<string, (value: Buffer) => boolean>>) =>
  (value: Buffer): boolean => {
    if (!isObject(value)) return false;
    const [name, ...others] = membersBytes(value, [required, ...Object.keys(optional)]);
    return !!name && isText(name) && Object.values(optional).every((isRight, i) => !others[i] || isRight(others[i]));
  };

const text = only(isText);
const flag = only(isFlag);
const common: Rules = {
  title: text,
  description: text,
  icons: only(each(isObjectWith('src', { mimeType: isText, sizes: each(isText), theme: isOneOf(['light', 'dark']) }))),
  _meta: only(isObject),
};
const resource: Rules = {
  ...common,
  mimeType: text,
  annotations: within({
    audience: only(each(isOneOf(['user', 'assistant']))),
    priority: only(isShare),
    lastModified: only(isDate),
  }),
};

/** A missing type becomes "object", and so does a list of types that contains "object". */
const argumentsType: Rule = (value) => {
  if (!value || value[0] === 0x6e) return objectType;
  if (stringOf(value) === 'object') return value;
  return isList(value) && elementsOf(value).some(isOneOf(['object'])) ? objectType : unusable;
};

/** Clients require an object for each property, so `true` and `false` are replaced with equivalent objects. */
const properties: Rule = (value, fault) => {
  // PHP encodes an empty map as a list.
  if (!isObject(value)) return value && isList(value) && elementsOf(value).length === 0 ? emptyObject : undefined;
  const edits: [string, Buffer][] = [];
  const names = new Set<string>();
  eachMember(value, 0, value.length, 0, ({ keyStart, keyEnd, valueStart }) => {
    if (value[valueStart] === 0x7b) return true;
    const name = JSON.parse(value.toString('utf8', keyStart - 1, keyEnd + 1)) as string;
    if (!names.has(name)) edits.push([name, value[valueStart] === 0x66 ? Buffer.from('{"not":{}}') : emptyObject]);
    names.add(name);
    return true;
  });
  for (const [name] of edits) fault(name);
  return edits.length === 0 ? value : (editMembers(value, edits) ?? unusable);
};

const inputSchema: Rule = (value, fault) => {
  if (!value || value[0] === 0x6e || (isList(value) && elementsOf(value).length === 0)) return anyArguments;
  if (!isObject(value)) return unusable;
  return mended(value, { type: argumentsType, properties, required: only(each(isText)), $schema: text }, fault);
};

/** The member that identifies an item is checked by the reader of the list: an item without it has the key ''. */
const rulesOf: Readonly<Record<ListMethod, Rules>> = {
  'tools/list': {
    ...common,
    inputSchema,
    outputSchema: only(isObject),
    annotations: within({
      ...{ title: text, readOnlyHint: flag, destructiveHint: flag, idempotentHint: flag, openWorldHint: flag },
    }),
    execution: within({ taskSupport: only(isOneOf(['required', 'optional', 'forbidden'])) }),
  },
  'prompts/list': {
    ...common,
    arguments: (value) =>
      !value || value[0] === 0x6e || each(isObjectWith('name', { description: isText, required: isFlag }))(value)
        ? value && isList(value)
          ? value
          : undefined
        : unusable,
  },
  'resources/list': { ...resource, size: only(isNumber) },
  'resources/templates/list': resource,
};

/** Applies the rules to an object; `fault` is called with the path of each faulty member. */
function mended(bytes: Buffer, rules: Rules, fault: (path: string) => void): Buffer | typeof unusable {
  const names = Object.keys(rules);
  const values = membersBytes(bytes, names);
  const edits: (readonly [string, Buffer | undefined])[] = [];
  for (const [i, name] of names.entries()) {
    const value = values[i];
    let isNamed = false;
    const next = (rules[name] as Rule)(value, (inner) => {
      isNamed = true;
      fault(`${name}.${inner}`);
    });
    if (next === value) continue;
    if (!isNamed) fault(name);
    if (next === unusable) return unusable;
    edits.push([name, next]);
  }
  return edits.length === 0 ? bytes : (editMembers(bytes, edits as MemberEdits) ?? unusable);
}

export function checkItem(method: ListMethod, item: ListedItem): ItemFault | undefined {
  const { key, raw } = item;
  const fields: string[] = [];
  if (key === '') return { fields: [method.startsWith('resources/') ? 'uri' : 'name'], item: undefined };
  let bytes = mended(raw, rulesOf[method], (path) => fields.push(path));
  if (bytes !== unusable && method.startsWith('resources/')) bytes = withName(bytes, key, fields);
  if (bytes === unusable) return { fields, item: undefined };
  const variants = method === 'tools/list' ? variantsOf(bytes, fields) : {};
  if (fields.length === 0 && !variants.hasModernOutput) return undefined;
  return { fields, item: { key, raw: bytes, ...variants } };
}

function withName(bytes: Buffer, uri: string, fields: string[]): Buffer | typeof unusable {
  const [name] = membersBytes(bytes, ['name']);
  if (name && isText(name)) return bytes;
  fields.push('name');
  return editMembers(bytes, [['name', JSON.stringify(uri)]]) ?? unusable;
}

// --- what model providers and older clients refuse

const unions = { oneOf: 'exactly one', anyOf: 'at least one', allOf: 'all' } as const;
/** Characters of a schema that are quoted in a description. */
const quotedChars = 2_000;

/**
 * Texts of a tool for some clients. `joined` has no `oneOf`, `anyOf` or `allOf` at the top of the arguments: model providers
 * refuse the whole request if one tool has them there.
 */
function variantsOf(bytes: Buffer, fields: string[]): Pick<ShownItem, 'joined' | 'hasModernOutput'> {
  const [schema, described, output] = membersBytes(bytes, ['inputSchema', 'description', 'outputSchema']);
  const keywords = Object.keys(unions) as (keyof typeof unions)[];
  const sentences: string[] = [];
  for (const [i, value] of (schema ? membersBytes(schema, keywords) : []).entries()) {
    const keyword = keywords[i] as keyof typeof unions;
    if (!value) continue;
    fields.push(`inputSchema.${keyword}`);
    sentences.push(`The arguments must match ${unions[keyword]} of these JSON schemas: ${quoted(value)}`);
  }
  const hasModernOutput = output !== undefined && mended(output, legacyOutput, () => {}) !== output;
  const flat =
    sentences.length > 0 &&
    schema &&
    editMembers(
      schema,
      keywords.map((keyword) => [keyword, undefined]),
    );
  const description = [described && stringOf(described), ...sentences].filter(Boolean).join('\n\n');
  const joined =
    flat &&
    editMembers(bytes, [
      ['description', JSON.stringify(description)],
      ['inputSchema', flat],
    ]);
  return { ...(joined ? { joined } : {}), ...(hasModernOutput ? { hasModernOutput } : {}) };
}

const legacyOutput: Rules = {
  type: (value) => (value && stringOf(value) === 'object' ? value : unusable),
  properties,
  required: only(each(isText)),
};

function quoted(schemas: Buffer): string {
  const json = JSON.stringify(JSON.parse(schemas.toString('utf8')));
  return json.length > quotedChars ? `${json.slice(0, quotedChars)}…` : json;
}

function elementsOf(list: Buffer): Buffer[] {
  const elements: Buffer[] = [];
  eachElement(list, 0, list.length, 0, (start, end) => {
    elements.push(list.subarray(start, end));
    return true;
  });
  return elements;
}

const numberOf = (value: Buffer): number =>
  /^[-\d]/.test(value.toString('latin1', 0, 1)) ? Number(value) : Number.NaN;

// --- whole lists

type Faults = ReadonlyMap<ListedItem, ItemFault>;

/** Bytes checked in one turn of the event loop: about a millisecond of work. */
const sliceBytes = 256 * 1024;
/** Faults by list, so that each list is checked once. */
const checked = new WeakMap<readonly ListedItem[], Faults>();

/** Raise it with every change of the rules: stored lists are then checked again. */
const rulesVersion = 1;
const noFaults: Faults = new Map();

/** Version of the rules that found no fault in the list; undefined if the list has a fault or was not checked. */
export const soundBy = (items: readonly ListedItem[]): number | undefined =>
  checked.get(items)?.size === 0 ? rulesVersion : undefined;

/**
 * Marks a stored list as free of faults if `version`, its stored `soundBy`, is the present version of the rules. A start with
 * 1,000 tools saves 20 ms.
 */
export function trustSound(items: readonly ListedItem[], version: number | undefined): void {
  if (version === rulesVersion) checked.set(items, noFaults);
}

/** Checks a long list in several turns; `faultsIn` then returns the result. Undefined: there is little to do. */
export function checkAhead(method: ListMethod, items: readonly ListedItem[]): Promise<void> | undefined {
  let bytes = 0;
  for (const { raw } of items) bytes += raw.length;
  return bytes > sliceBytes && !checked.has(items) ? checkInSlices(method, items) : undefined;
}

async function checkInSlices(method: ListMethod, items: readonly ListedItem[]): Promise<void> {
  const faults = new Map<ListedItem, ItemFault>();
  let bytes = 0;
  for (const item of items) {
    const fault = checkItem(method, item);
    if (fault) faults.set(item, fault);
    bytes += item.raw.length;
    if (bytes < sliceBytes) continue;
    bytes = 0;
    await nextTurn();
  }
  checked.set(items, faults);
}

export function faultsIn(method: ListMethod, items: readonly ListedItem[]): Faults {
  let faults = checked.get(items);
  if (!faults) {
    const found = items.flatMap((item) => {
      const fault = checkItem(method, item);
      return fault ? [[item, fault] as const] : [];
    });
    faults = new Map(found);
    checked.set(items, faults);
  }
  return faults;
}
