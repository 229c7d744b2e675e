/**
 * Reads `hostler.json`: JSON with comments and trailing commas. Replaces the placeholders.
 * Not here: validation of the value (host-config.ts), watching the file (cli/config/watch-config.ts).
 * Invariant: a syntax error makes the whole file unusable, and the error names line and column. A duplicate key is a syntax
 * error, because two parsers could use different values. Values that only a client reads are not checked for duplicate keys.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { type Node, type ParseError, parseTree, printParseErrorCode } from 'jsonc-parser';
import { faultsOf, HostError, isHostError, joinFaults } from '../kernel/errors.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { isRemark, type Normalised, normaliseConfig } from './client-config.js';
import { isEntryTable, UnusableEntry } from './copy-config.js';
import { configBytesMax } from './folders.js';
import { invalidSpec } from './invalid-spec.js';
import { refuseOwnCommands } from './own-entry.js';
import { type Filled, fillPlaceholders, type PlaceholderSources } from './placeholders.js';
import { withoutForeign, withoutMark } from './without-foreign.js';

const depthMax = 64;
const shownChars = 200;
/** Longest name in a path of an error. */
const pathChars = 64;
const syntaxErrorsMax = 20;

export function readConfigFile(file: string, env: Readonly<Record<string, string | undefined>>): ReadConfig {
  const folder = path.dirname(path.resolve(file));
  return fillConfig(normaliseText(readConfigSource(file).text, file), { env, folder });
}

/** A configuration in Hostler's shape, with its placeholders as written. */
interface WrittenConfig extends Normalised {
  /** Adds the place in the file to an error: line, column, and the path as written. */
  readonly locate: (error: HostError) => HostError;
  readonly file: string;
}

export interface ReadConfig extends Filled, Pick<WrittenConfig, 'locate'> {}

export function normaliseText(text: string, file: string): WrittenConfig {
  const { value, tree, body } = parsed(text, file);
  const normalised = normaliseConfig(value);
  return { ...normalised, locate: locator(placesOf(tree, body), file, normalised.written), file };
}

/** Thrown errors include their place in the file. */
export function fillConfig({ config, notes, locate, file }: WrittenConfig, sources: PlaceholderSources): ReadConfig {
  try {
    const filled = fillPlaceholders(config, sources);
    return {
      ...filled,
      config: refuseOwnCommands(filled.config, file, sources.env),
      problems: [...filled.problems, ...notes],
      locate,
    };
  } catch (error) {
    throw isHostError(error) ? joinFaults(faultsOf(error).map(locate)) : error;
  }
}

interface ConfigSource {
  readonly text: string;
  /** Path without symbolic links. */
  readonly realFile: string;
  /** Owner of the file; always the same on systems without owners. */
  readonly uid: number;
}

/** The open descriptor guarantees that text and owner belong to the same file. */
export function readConfigSource(file: string): ConfigSource {
  let descriptor: number | undefined;
  try {
    const realFile = realpathSync(file);
    const { O_RDONLY, O_NOFOLLOW = 0, O_NONBLOCK = 0 } = constants;
    descriptor = openSync(realFile, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    const facts = fstatSync(descriptor);
    if (!facts.isFile()) throw unusable(file, 'is not a file', 'name a file');
    if (facts.size > configBytesMax) throw unusable(file, 'is larger than 32 MiB', 'name a smaller file');
    return { text: readFileSync(descriptor, 'utf8'), realFile, uid: facts.uid };
  } catch (error) {
    if (error instanceof HostError) throw error;
    const { code = 'unreadable' } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') throw unusable(file, 'does not exist', 'create it, or name another file');
    throw unusable(file, `cannot be read (${code})`, 'allow hostler to read it');
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}

/** `file` is used in errors only. Throws all mistakes of the text (`faultsOf`). */
export const parseConfigText = (text: string, file: string): unknown => parsed(text, file).value;

function parsed(text: string, file: string) {
  const errors: ParseError[] = [];
  const body = withoutMark(text);
  const wrong: Wrong = (offset, what) => wrongAt(file, body, offset, what);
  const tree = treeOf(withoutForeign(body), errors, wrong);
  // If the end of a file is missing, the parser reports one missing brace for each open object, all at the same place.
  const places = errors.filter(({ offset }, i) => errors[i - 1]?.offset !== offset);
  const faults = places.slice(0, syntaxErrorsMax).map(({ offset, error }) => wrong(offset, errorText(error)));
  if (!tree && faults.length === 0) throw wrong(0, 'the file is empty');
  try {
    const value = tree && faults.length === 0 ? valueAt(tree, { body, wrong, faults }, []) : undefined;
    if (faults.length > 0) throw joinFaults(faults);
    return { value, tree, body };
  } catch (error) {
    throw error instanceof TooDeep ? wrong(error.offset, error.message) : error;
  }
}

/**
 * `places`: line and column by path, computed for all paths in advance, because the text of a client's file is too large to keep.
 * `written`: paths of the file, by path of the configuration.
 */
function locator(
  places: ReadonlyMap<string, string>,
  file: string,
  written: ReadonlyMap<string, string>,
): (error: HostError) => HostError {
  const writtenPath = (field: string): string => {
    const known = prefixesOf(field).find((prefix) => written.has(prefix));
    return known === undefined ? field : `${written.get(known)}${field.slice(known.length)}`;
  };
  return (error) => {
    const { field = '', reason } = error.details;
    if (error.code !== 'invalid_spec' || (reason !== undefined && !isRemark(error))) return error;
    const path = writtenPath(field);
    const known = prefixesOf(path).find((prefix) => places.has(prefix));
    if (known === undefined) return error;
    const message = error.message.startsWith(`${field}: `) ? error.message.slice(field.length + 2) : error.message;
    const place = `${file}:${places.get(known)}: ${path}: ${message}`;
    return error.with({ message: place, ...(reason === undefined ? { reason: 'config' } : {}) });
  };
}

/** The path, then each of its parent paths. */
const prefixesOf = (path: string): string[] => {
  const ends = [...path.matchAll(/\./g)].map(({ index }) => index).reverse();
  return [path, ...ends.map((end) => path.slice(0, end))];
};

/** Line and column of all members by path. The paths shorten and escape names as the paths in errors do. */
function placesOf(tree: Node | undefined, body: string): Map<string, string> {
  const places = new Map<string, string>();
  const placeAt = placer(body);
  const visit = ({ type, children = [] }: Node, at: string): void => {
    for (const [i, child] of children.entries()) {
      const [key, value] = type === 'object' ? (child.children ?? []) : [child, child];
      const name = type === 'object' ? detached(neutraliseLine(String(key?.value), pathChars)) : String(i);
      const path = at === '' ? name : `${at}.${name}`;
      places.set(path, placeAt(child.offset));
      if (value) visit(value, path);
    }
  };
  if (tree) visit(tree, '');
  return places;
}

/** The parser is recursive, so a million brackets overflow the stack. */
function treeOf(body: string, errors: ParseError[], wrong: Wrong): Node | undefined {
  try {
    return parseTree(body, errors, { allowTrailingComma: true, allowEmptyContent: false });
  } catch (error) {
    if (error instanceof RangeError) throw wrong(0, new TooDeep(0).message);
    throw error;
  }
}

type Wrong = (offset: number, what: string) => HostError;

class TooDeep extends Error {
  readonly offset: number;

  constructor(offset: number) {
    super(`is nested more than ${depthMax} deep`);
    this.offset = offset;
  }
}

interface Reader {
  readonly body: string;
  readonly wrong: Wrong;
  readonly faults: HostError[];
}

/** Objects have no prototype, so `__proto__` is an ordinary key. An entry that is nested too deep becomes an UnusableEntry. */
function valueAt(node: Node, reader: Reader, path: readonly string[]): unknown {
  if (path.length > depthMax) throw new TooDeep(node.offset);
  if (node.type === 'array') return (node.children ?? []).map((each, i) => valueAt(each, reader, [...path, String(i)]));
  if (node.type === 'number') return numberAt(node, reader.body);
  if (node.type === 'string') return detached(node.value);
  if (node.type !== 'object') return node.value;
  const { wrong, faults } = reader;
  const isTable = isEntryTable(path.join('.'));
  const found: Record<string, unknown> = Object.create(null);
  for (const { offset, children: [key, value] = [] } of node.children ?? []) {
    if (!key || !value) throw wrong(offset, 'a key has no value');
    const name = detached(String(key.value));
    if (name in found) {
      faults.push(wrong(key.offset, `the key '${neutraliseLine(name, shownChars)}' is given twice`));
      continue;
    }
    try {
      found[name] = valueAt(value, reader, [...path, name]);
    } catch (error) {
      if (!isTable || !(error instanceof TooDeep)) throw error;
      found[name] = new UnusableEntry(wrong(error.offset, error.message));
    }
  }
  return found;
}

/** A substring may keep the whole string in memory; a copy does not. */
const detached = (text: string): string => Buffer.from(text, 'utf16le').toString('utf16le');

/** An integer that is too large for a JavaScript number stays text, because it may be an id in `env`. */
function numberAt({ value, offset, length }: Node, body: string): unknown {
  const digits = body.slice(offset, offset + length);
  return Number.isSafeInteger(value) || !/^-?\d+$/.test(digits) ? value : digits;
}

/** `CommaExpected` → `comma expected`. */
const errorText = (error: ParseError['error']): string =>
  printParseErrorCode(error)
    .replace(/(?<=[a-z])[A-Z]/g, (letter) => ` ${letter}`)
    .toLowerCase();

/** Returns a function that gives line and column of an offset. Offsets must not decrease from call to call. */
function placer(text: string): (offset: number) => string {
  let [line, lineStart, at] = [1, 0, 0];
  return (offset) => {
    for (; at < offset; at++) {
      if (text[at] !== '\n' && (text[at] !== '\r' || text[at + 1] === '\n')) continue;
      line++;
      lineStart = at + 1;
    }
    return `${line}:${offset - lineStart + 1}`;
  };
}

function wrongAt(file: string, text: string, offset: number, what: string): HostError {
  const hint = 'correct the file; comments and trailing commas are fine';
  return invalidSpec('', `${file}:${placer(text)(offset)}: ${what}`, hint, { reason: 'syntax' });
}

const unusable = (file: string, what: string, hint: string): HostError =>
  invalidSpec('', `the configuration ${file} ${what}`, hint, { reason: 'config' });
