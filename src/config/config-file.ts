/**
 * Reads `hostler.json`: JSON with comments and trailing commas. Replaces the placeholders.
 * Not here: validation of the value (host-config.ts), watching the file (cli/config/watch-config.ts).
 * Invariant: a syntax error makes the whole file unusable, and the error names line and column. A duplicate key is a syntax
 * error, because two parsers could use different values.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { type Node, type ParseError, parseTree, printParseErrorCode } from 'jsonc-parser';
import { HostError } from '../kernel/errors.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { isEntryTable, UnusableEntry } from './copy-config.js';
import { type Filled, fillPlaceholders } from './placeholders.js';
import { invalidSpec } from './schema-issues.js';

const fileBytesMax = 4 * 1024 * 1024;
const depthMax = 64;
const shownChars = 200;

export function readConfigFile(file: string, env: Readonly<Record<string, string | undefined>>): Filled {
  return fillPlaceholders(parseConfigText(readConfigSource(file).text, file), {
    env,
    folder: path.dirname(path.resolve(file)),
  });
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
    if (facts.size > fileBytesMax) throw unusable(file, 'is larger than 4 MiB', 'name a smaller file');
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

/** `file` is used in errors only. */
export function parseConfigText(text: string, file: string): unknown {
  const errors: ParseError[] = [];
  // A space replaces the byte order mark, so that offsets stay the same.
  const body = text.replace(/^\ufeff/, ' ');
  const wrong: Wrong = (offset, what) => wrongAt(file, body, offset, what);
  const tree = treeOf(body, errors, wrong);
  const [first] = errors;
  if (first) throw wrong(first.offset, errorText(printParseErrorCode(first.error)));
  if (!tree) throw wrong(0, 'the file is empty');
  try {
    return valueAt(tree, wrong, []);
  } catch (error) {
    throw error instanceof TooDeep ? wrong(error.offset, error.message) : error;
  }
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

/** Objects have no prototype, so `__proto__` is an ordinary key. An entry that is nested too deep becomes an UnusableEntry. */
function valueAt(node: Node, wrong: Wrong, path: readonly string[]): unknown {
  if (path.length > depthMax) throw new TooDeep(node.offset);
  if (node.type === 'array') return (node.children ?? []).map((each, i) => valueAt(each, wrong, [...path, String(i)]));
  if (node.type !== 'object') return node.value;
  const isTable = isEntryTable(path.join('.'));
  const found: Record<string, unknown> = Object.create(null);
  for (const { offset, children: [key, value] = [] } of node.children ?? []) {
    if (!key || !value) throw wrong(offset, 'a key has no value');
    const name = String(key.value);
    if (name in found) throw wrong(key.offset, `the key '${neutraliseLine(name, shownChars)}' is given twice`);
    try {
      found[name] = valueAt(value, wrong, [...path, name]);
    } catch (error) {
      if (!isTable || !(error instanceof TooDeep)) throw error;
      found[name] = new UnusableEntry(wrong(error.offset, error.message));
    }
  }
  return found;
}

/** `CommaExpected` → `comma expected`. */
const errorText = (code: string): string => code.replace(/(?<=[a-z])[A-Z]/g, (letter) => ` ${letter}`).toLowerCase();

function wrongAt(file: string, text: string, offset: number, what: string): HostError {
  const before = text.slice(0, offset).split(/\r\n|\n|\r/);
  const place = `${before.length}:${(before.at(-1) ?? '').length + 1}`;
  const hint = 'correct the file; comments and trailing commas are fine';
  return invalidSpec('', `${file}:${place}: ${what}`, hint, { reason: 'syntax' });
}

const unusable = (file: string, what: string, hint: string): HostError =>
  invalidSpec('', `the configuration ${file} ${what}`, hint, { reason: 'config' });
