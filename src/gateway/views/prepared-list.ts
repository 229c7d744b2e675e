/**
 * Lists as bytes that are ready to be written: one page of one list, as one view shows it in the words of one era.
 * An item keeps the bytes its server wrote; only its name is put in another's place, and the state of a server that is not
 * ready is put beside it.
 * Not here: what is in a list (view.ts).
 *
 * Invariants: bounded in pages and bytes; a cursor means the same place of the same list or nothing.
 */
import type { ListMethod } from '../../session/lists.js';
import { META } from '../../session/versions.js';
import type { Era } from '../../wire/channel.js';
import { spliceMeta } from '../../wire/json-edit.js';
import { keyIs, type Span } from '../../wire/json-members.js';
import { eachMember } from '../../wire/json-scan.js';
import { latin1 } from '../../wire/json-text.js';
import type { Entry, Table } from './table.js';
import type { View } from './view.js';

const keptPagesMax = 64;
const keptBytesMax = 64 * 1024 * 1024;

const membersOf: Readonly<Record<ListMethod, string>> = {
  'tools/list': 'tools',
  'prompts/list': 'prompts',
  'resources/list': 'resources',
  'resources/templates/list': 'resourceTemplates',
};

/** What an item is asked for by. */
const namesOf: Readonly<Record<ListMethod, string>> = {
  'tools/list': 'name',
  'prompts/list': 'name',
  'resources/list': 'uri',
  'resources/templates/list': 'uriTemplate',
};

export const STATE = 'hostler/state';

export interface PageRequest {
  readonly view: View;
  readonly states: string;
  readonly method: ListMethod;
  readonly era: Era;
  /** Who answers, for the modern era: one JSON object. */
  readonly serverInfo: string;
  /** False: the list must not be kept for others than who asked, whatever its servers say. */
  readonly mayBePublic: boolean;
  readonly page: number;
}

interface LastPage extends Pick<PageRequest, 'page' | 'method' | 'era' | 'states'> {
  readonly table: Table;
  readonly info: string;
  readonly isPublic: boolean;
  readonly bytes: Buffer;
}

export class PreparedLists {
  readonly #kept = new Map<string, Buffer>();
  /** What was asked for last is likely asked for next, and is found without putting its key together. */
  #last: LastPage | undefined;
  readonly #tableNumbers = new WeakMap<Table, number>();
  #lastTable = 0;
  #bytes = 0;
  /** How many pages were put together, as opposed to found. */
  made = 0;

  /** The text of one result object. Not to be changed by whoever is handed it. */
  page(request: PageRequest): Buffer {
    const { view, method, era, page } = request;
    // Only tools say whether their server runs, and only modern answers who gave them.
    const states = method === 'tools/list' ? request.states : '';
    const info = era === 'modern' ? request.serverInfo : '';
    const table = view.table(method);
    const isPublic = era === 'modern' && table.isPublic && request.mayBePublic;
    const last = this.#last;
    if (
      last?.table === table &&
      last.page === page &&
      last.method === method &&
      last.era === era &&
      last.states === states &&
      last.info === info &&
      last.isPublic === isPublic
    )
      return last.bytes;
    const key = `${this.#numberOf(table)} ${method} ${era} ${isPublic} ${page}\n${states}\n${info}`;
    const bytes = this.#find(key, request);
    this.#last = { table, page, method, era, states, info, isPublic, bytes };
    return bytes;
  }

  #find(key: string, request: PageRequest): Buffer {
    const kept = this.#kept.get(key);
    if (kept) return kept;
    const bytes = this.#make(request);
    this.#keep(key, bytes);
    return bytes;
  }

  #make({ view, method, era, serverInfo, mayBePublic, page }: PageRequest): Buffer {
    this.made++;
    const table = view.table(method);
    let text = `{"${membersOf[method]}":[`;
    const first = table.pageStarts[page] ?? 0;
    const end = table.pageStarts[page + 1] ?? table.entries.length;
    let server: string | undefined;
    let state: string | undefined;
    for (let i = first; i < end; i++) {
      const entry = table.entries[i] as Entry;
      if (i > first) text += ',';
      // Those of one server stand together.
      if (entry.server !== server) {
        server = entry.server;
        const known = method === 'tools/list' ? view.known(server) : undefined;
        state = known && !known.isReady ? known.state : undefined;
      }
      text += itemText(entry, namesOf[method], state);
    }
    const next = page + 1 < table.pageStarts.length ? `,"nextCursor":"${cursorOf(table, page + 1)}"` : '';
    text += latin1(`]${next}${era === 'modern' ? modernWords(table, serverInfo, mayBePublic) : ''}}`);
    return Buffer.from(text, 'latin1');
  }

  #keep(key: string, page: Buffer): void {
    if (page.length > keptBytesMax) return;
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size < keptPagesMax && this.#bytes + page.length <= keptBytesMax) break;
      this.#bytes -= this.#kept.get(oldest)?.length ?? 0;
      this.#kept.delete(oldest);
    }
    this.#kept.set(key, page);
    this.#bytes += page.length;
  }

  /** Tables that are gone are never asked for again; their pages are the oldest, and go first. */
  #numberOf(table: Table): number {
    const number = this.#tableNumbers.get(table) ?? ++this.#lastTable;
    this.#tableNumbers.set(table, number);
    return number;
  }
}

// Texts below are of Latin-1, a letter for each byte of UTF-8: put together as such, a list of a thousand items is one copy.

/** `state`: of a server that is not ready. */
function itemText({ key, name, item }: Entry, member: string, state: string | undefined): string {
  const text = item.raw.toString('latin1');
  if (state === undefined && name === key) return text;
  const { start, end, isPlain } = quickShapeOf(key, text, member) ?? shapeOf(item.raw, member);
  const shown = name === key ? text.slice(start, end) : latin1(JSON.stringify(name));
  if (state === undefined) return text.slice(0, start) + shown + text.slice(end);
  if (isPlain) return beginningWith(state) + text.slice(1, start) + shown + text.slice(end);
  return withState(Buffer.from(text.slice(0, start) + shown + text.slice(end), 'latin1'), state);
}

/** Where the name is in an item; `isPlain`: the item begins with its brace and has no `_meta` of its own. */
interface Shape extends Span {
  readonly isPlain: boolean;
}

/**
 * Of an item that begins with its name, as nearly all do; undefined when a closer look is needed. A `_meta` can only be there
 * if these letters are, or an escape that could stand for one of them.
 */
function quickShapeOf(key: string, text: string, member: string): Shape | undefined {
  const start = member.length + 4;
  const beginning = `{"${member}":${latin1(JSON.stringify(key))}`;
  if (!text.startsWith(beginning) || text.includes('_meta') || text.includes('\\u')) return undefined;
  return { start, end: beginning.length, isPlain: true };
}

function shapeOf(raw: Buffer, member: string): Shape {
  let start = 0;
  let end = 0;
  let isPlain = raw[0] === OPEN_BRACE;
  // Its name is there and there once: an item is listed by it.
  eachMember(raw, 0, raw.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    if (keyIs(raw, keyStart, keyEnd, member)) {
      start = valueStart;
      end = valueEnd;
    } else if (keyIs(raw, keyStart, keyEnd, '_meta')) isPlain = false;
    return undefined;
  });
  return { start, end, isPlain: isPlain && end > 0 };
}

const OPEN_BRACE = 0x7b;

const beginnings = new Map<string, string>();

/** The states are few. */
function beginningWith(state: string): string {
  let beginning = beginnings.get(state);
  if (beginning === undefined) {
    beginning = latin1(`{"_meta":{"${STATE}":${JSON.stringify(state)}},`);
    beginnings.set(state, beginning);
  }
  return beginning;
}

/** An item with a `_meta` that is none is left as it is: its server may yet be right about it. */
function withState(raw: Buffer, state: string): string {
  try {
    return spliceMeta(raw, [[STATE, JSON.stringify(state)]]).toString('latin1');
  } catch {
    return raw.toString('latin1');
  }
}

function modernWords({ ttlMs, isPublic }: Table, serverInfo: string, mayBePublic: boolean): string {
  const scope = isPublic && mayBePublic ? 'public' : 'private';
  return `,"resultType":"complete","ttlMs":${ttlMs},"cacheScope":"${scope}","_meta":{"${META.serverInfo}":${serverInfo}}`;
}

const cursorOf = ({ digest }: Table, page: number): string => Buffer.from(`${digest}.${page}`).toString('base64url');

const cursorCharsMax = 128;

/** The page a cursor stands for; undefined when it is of another list, or of none. */
export function pageOfCursor(table: Table, cursor: string): number | undefined {
  if (cursor.length > cursorCharsMax) return undefined;
  const [digest, number] = Buffer.from(cursor, 'base64url').toString('latin1').split('.');
  const page = Number(number);
  const isOfTable = digest === table.digest && cursor === cursorOf(table, page);
  return isOfTable && page > 0 && page < table.pageStarts.length ? page : undefined;
}
