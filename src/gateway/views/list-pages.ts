/**
 * Cached pages of lists as bytes: one page of one list, as one view shows it in one era.
 * An item keeps the bytes of its server, except for its name. A tool of a server that is not ready also shows that state.
 * Not here: the content of a list (view.ts), the order of paging (table.ts).
 * Invariants: pages and bytes are bounded. A cursor names the last item of the previous page, so it survives list changes.
 * A client may make up a cursor, so a page is cached only if a client that reads the whole list gets the same page.
 */
import type { ListMethod } from '../../session/lists.js';
import { latin1 } from '../../wire/channel.js';
import { editMembers, spliceMeta } from '../../wire/json-edit.js';
import { keyIs, type Span } from '../../wire/json-members.js';
import { eachMember } from '../../wire/json-scan.js';
import type { Entry } from './server-lists.js';
import { type Position, pageEnd, type Table } from './table.js';
import type { View } from './view.js';

const pagesMax = 64;
const bytesMax = 64 * 1024 * 1024;

/** The member with the items, and the member by which clients request an item. */
const members: Readonly<Record<ListMethod, { readonly items: string; readonly name: string }>> = {
  'tools/list': { items: 'tools', name: 'name' },
  'prompts/list': { items: 'prompts', name: 'name' },
  'resources/list': { items: 'resources', name: 'uri' },
  'resources/templates/list': { items: 'resourceTemplates', name: 'uriTemplate' },
};

const STATE = 'hostler/state';

export interface PageRequest {
  readonly view: View;
  readonly states: string;
  readonly method: ListMethod;
  /** Text of the members that the client's era adds at the end of the result. */
  readonly trailer: string;
  /** True if the client drops a whole list when the output schema of one tool is not of type object. */
  readonly needsObjectOutput?: boolean;
  /** Undefined for the first page. */
  readonly after: Position | undefined;
}

/** Start value for a list that fits one page. Such a list is not sorted. */
const wholeList = -1;

export class ListPages {
  readonly #pages = new Map<string, Buffer>();
  #bytes = 0;
  /** Number of pages that were not in the cache. */
  made = 0;

  /** Returns the text of one result object. The caller must not change it. */
  page(request: PageRequest): Buffer {
    const { view, method, trailer, after, needsObjectOutput = false } = request;
    // Only tools show the state of their server.
    const states = method === 'tools/list' ? request.states : '';
    const table = view.table(method);
    const start = after ? table.indexAfter(after) : table.isOnePage ? wholeList : 0;
    // Table ids are unique, so pages of a dropped table are never found again and are evicted as the oldest.
    const key = `${table.id} ${method} ${start} ${needsObjectOutput}\n${states}\n${trailer}`;
    let bytes = this.#pages.get(key);
    if (!bytes) {
      bytes = this.#make(request, table, start);
      if (start === wholeList || table.isPageStart(start)) this.#store(key, bytes);
    }
    return bytes;
  }

  #make({ view, method, trailer, needsObjectOutput }: PageRequest, table: Table, start: number): Buffer {
    this.made++;
    const entries = start === wholeList ? table.entries : table.sorted;
    const first = Math.max(start, 0);
    const end = pageEnd(entries, first);
    let text = `{"${members[method].items}":[`;
    let server: string | undefined;
    let state: string | undefined;
    for (let i = first; i < end; i++) {
      const entry = entries[i] as Entry;
      if (i > first) text += ',';
      // Entries of one server are adjacent.
      if (entry.server !== server) {
        server = entry.server;
        const known = method === 'tools/list' ? view.known(server) : undefined;
        state = known && !known.isReady ? known.state : undefined;
      }
      text += itemText(needsObjectOutput ? withObjectOutput(entry) : entry, members[method].name, state);
    }
    const next = end < entries.length ? `,"nextCursor":"${cursorAfter(method, entries[end - 1] as Entry)}"` : '';
    text += latin1(`]${next}${trailer}}`);
    return Buffer.from(text, 'latin1');
  }

  #store(key: string, page: Buffer): void {
    if (page.length > bytesMax) return;
    for (const oldest of this.#pages.keys()) {
      if (this.#pages.size < pagesMax && this.#bytes + page.length <= bytesMax) break;
      this.#bytes -= this.#pages.get(oldest)?.length ?? 0;
      this.#pages.delete(oldest);
    }
    this.#pages.set(key, page);
    this.#bytes += page.length;
  }
}

/** The entry without its output schema, if that is not of type object. */
function withObjectOutput(entry: Entry): Entry {
  const { item } = entry;
  const raw = item.hasModernOutput ? editMembers(item.raw, [['outputSchema', undefined]]) : undefined;
  return raw ? { ...entry, item: { ...item, raw } } : entry;
}

// The texts below are Latin-1, one character per byte of UTF-8, so that joining a thousand items is one copy.

/** `state` is undefined for a ready server. */
function itemText({ key, name, item }: Entry, member: string, state: string | undefined): string {
  const text = item.raw.toString('latin1');
  if (state === undefined && name === key) return text;
  const { start, end, isPlain } = quickShapeOf(key, text, member) ?? shapeOf(item.raw, member);
  const shown = name === key ? text.slice(start, end) : latin1(JSON.stringify(name));
  if (state === undefined) return text.slice(0, start) + shown + text.slice(end);
  if (isPlain) return beginningWith(state) + text.slice(1, start) + shown + text.slice(end);
  return withState(Buffer.from(text.slice(0, start) + shown + text.slice(end), 'latin1'), state);
}

/** Span of the name in an item. `isPlain`: the item begins with its brace and has no `_meta`. */
interface Shape extends Span {
  readonly isPlain: boolean;
}

/** Fast path for an item that begins with its name, as nearly all do. Undefined: the item must be scanned. */
function quickShapeOf(key: string, text: string, member: string): Shape | undefined {
  const start = member.length + 4;
  const beginning = `{"${member}":${latin1(JSON.stringify(key))}`;
  // A `_meta` key contains these letters, or `\u` escapes of them.
  if (!text.startsWith(beginning) || text.includes('_meta') || text.includes('\\u')) return undefined;
  return { start, end: beginning.length, isPlain: true };
}

function shapeOf(raw: Buffer, member: string): Shape {
  let start = 0;
  let end = 0;
  let isPlain = raw[0] === OPEN_BRACE;
  // Every item has exactly one name: other items are not listed.
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

/** Cached start of an item, by state. */
const beginnings = new Map<string, string>();

function beginningWith(state: string): string {
  let beginning = beginnings.get(state);
  if (beginning === undefined) {
    beginning = latin1(`{"_meta":{"${STATE}":${JSON.stringify(state)}},`);
    beginnings.set(state, beginning);
  }
  return beginning;
}

/** Returns an item unchanged if its `_meta` is not an object. */
function withState(raw: Buffer, state: string): string {
  try {
    return spliceMeta(raw, [[STATE, JSON.stringify(state)]]).toString('latin1');
  } catch {
    return raw.toString('latin1');
  }
}

/** JSON escapes unpaired surrogates, which UTF-8 would replace. */
const cursorAfter = (method: ListMethod, { server, key }: Position): string =>
  Buffer.from(JSON.stringify([method, server, key])).toString('base64url');

/** Bounds the work for a made-up cursor: the scan of the request does not read the content of a cursor. */
const cursorCharsMax = 65_536;

/** Undefined for a text that cannot be a cursor of this method. */
export function readCursor(method: ListMethod, cursor: string): Position | undefined {
  if (cursor.length > cursorCharsMax) return undefined;
  try {
    const [, server, key] = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8')) as unknown[];
    if (typeof server !== 'string' || typeof key !== 'string') return undefined;
    const position = { server, key };
    return cursor === cursorAfter(method, position) ? position : undefined;
  } catch {
    return undefined;
  }
}
