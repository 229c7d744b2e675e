/**
 * Reads a paged list to its end and keeps every item as the bytes the server sent.
 * Invariants: bounded in pages, items and bytes while it is read, not after; of a large page others need not wait for more
 * than one look at it.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { memberString, membersBytes, stringOf } from '../wire/json-members.js';
import { eachElement } from '../wire/json-scan.js';

/** List method → the member that holds its items. */
const LISTS = {
  'tools/list': 'tools',
  'resources/list': 'resources',
  'resources/templates/list': 'resourceTemplates',
  'prompts/list': 'prompts',
} as const;

export type ListMethod = keyof typeof LISTS;

export const isListMethod = (method: unknown): method is ListMethod =>
  typeof method === 'string' && Object.hasOwn(LISTS, method);

export interface ListedItem {
  /** `name`, or `uri` / `uriTemplate` for resources; empty when the server gave none. */
  readonly key: string;
  readonly raw: Buffer;
}

export interface ServerList {
  readonly items: readonly ListedItem[];
  readonly pages: number;
  /** Shortest lifetime any page declared; 0 when one declared none. */
  readonly ttlMs: number;
  /** `public` only when every page says so. */
  readonly cacheScope: 'public' | 'private';
}

const cursorCharsMax = 4_096;
/** What is read of a page in one turn of the event loop. */
const turnBytes = 256 * 1024;

interface ListLimits {
  readonly items: number;
  readonly bytes: number;
  readonly itemBytes: number;
}

const toolLimits: ListLimits = {
  items: LIMITS.toolListItems,
  bytes: LIMITS.toolListBytes,
  itemBytes: LIMITS.toolBytes,
};
const otherLimits: ListLimits = { items: LIMITS.listItems, bytes: LIMITS.listBytes, itemBytes: LIMITS.listBytes };

const keyMembers = {
  'tools/list': 'name',
  'prompts/list': 'name',
  'resources/list': 'uri',
  'resources/templates/list': 'uriTemplate',
};

export async function readList(
  server: string,
  method: ListMethod,
  fetchPage: (params: string | undefined) => Promise<Buffer>,
): Promise<ServerList> {
  const items: ListedItem[] = [];
  const cursors = new Set<string>();
  let ttlMs = Number.POSITIVE_INFINITY;
  let isPublic = true;
  let bytes = 0;
  const limits = method === 'tools/list' ? toolLimits : otherLimits;
  const tooMany = (): never => {
    throw broken(server, method, 'too_many_items', 'has too many items', limits.items, listLess);
  };
  let cursor: string | undefined;
  for (let pages = 1; ; pages++) {
    const page = await fetchPage(cursor === undefined ? undefined : `{"cursor":${JSON.stringify(cursor)}}`);
    // In one look: a page may be as large as a frame.
    const [array, ttl, scope, next] = membersBytes(page, [LISTS[method], 'ttlMs', 'cacheScope', 'nextCursor']);
    await eachItem(array, tooMany, (raw) => {
      bytes += raw.length;
      if (items.length >= limits.items) tooMany();
      if (raw.length > limits.itemBytes)
        throw broken(server, method, 'item_too_large', 'has an item that is too large', limits.itemBytes, listLess);
      if (bytes > limits.bytes) throw broken(server, method, 'list_too_large', 'is too large', limits.bytes, listLess);
      items.push({ key: memberString(raw, keyMembers[method]) ?? '', raw });
    });
    ttlMs = Math.min(ttlMs, ttlOf(ttl));
    isPublic &&= scope !== undefined && stringOf(scope) === 'public';
    cursor = next && stringOf(next);
    if (cursor === undefined) return { items, pages, ttlMs, cacheScope: isPublic ? 'public' : 'private' };
    if (cursor.length > cursorCharsMax)
      throw broken(server, method, 'cursor_too_long', 'sent a huge cursor', cursorCharsMax);
    if (cursors.has(cursor)) throw broken(server, method, 'repeated_cursor', 'sent the same cursor twice');
    if (pages >= LIMITS.listPages) throw broken(server, method, 'too_many_pages', 'has no end', LIMITS.listPages);
    cursors.add(cursor);
  }
}

/** Each object in the page's array, as a copy: a view would keep the whole page in memory for as long as one item lives. */
async function eachItem(array: Buffer | undefined, tooMany: () => never, visit: (raw: Buffer) => void): Promise<void> {
  if (!array) return;
  const bounds: number[] = [];
  if (array.length > turnBytes) await nextTurn();
  let elements = 0;
  eachElement(array, 0, array.length, 0, (start, end) => {
    if (array[start] === 0x7b) bounds.push(start, end);
    // No list may have more, of whatever kind; one more tells that it does.
    return ++elements <= LIMITS.listItems;
  });
  if (elements > LIMITS.listItems) tooMany();
  let turnEnd = 0;
  for (let i = 0; i < bounds.length; i += 2) {
    const start = bounds[i] as number;
    visit(Buffer.from(array.subarray(start, bounds[i + 1])));
    if (start < turnEnd) continue;
    if (turnEnd > 0) await nextTurn();
    turnEnd = start + turnBytes;
  }
}

function ttlOf(text: Buffer | undefined): number {
  const ttlMs = Number(text?.toString('utf8'));
  return Number.isInteger(ttlMs) && ttlMs > 0 ? ttlMs : 0;
}

const listLess = 'the server can be called, but what it lists is not looked at; ask its author to list less';

function broken(
  server: string,
  method: string,
  reason: string,
  what: string,
  limit?: number,
  hint = 'the server’s paging is broken; report it to its author',
): HostError {
  return new HostError('protocol_error', `${method} of server '${server}' ${what}`, {
    server,
    reason,
    ...(limit === undefined ? {} : { limit }),
    hint,
  });
}
