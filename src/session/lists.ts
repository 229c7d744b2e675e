/**
 * Reads a paged list to its end and keeps every item as the bytes the server sent.
 * Invariants: bounded in pages, items and bytes while it is read, not after; a large page is read in slices, in turns that
 * have nothing else to do, and what is refused is refused before the rest of it is looked at.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { memberString, stringOf } from '../wire/json-members.js';
import { type Page, type PageFault, walkPage } from '../wire/page-walk.js';

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
/** One member of a page beside its list: a cursor, or what else a server has to say of it. */
const memberBytesMax = 256 * 1024;

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
  const refuse = (reason: keyof typeof refusals): never => {
    const [what, limit] = refusals[reason];
    throw broken(server, method, reason, what, limit === undefined ? memberBytesMax : limits[limit], listLess);
  };
  let cursor: string | undefined;
  for (let pages = 1; ; pages++) {
    const page = await fetchPage(cursor === undefined ? undefined : `{"cursor":${JSON.stringify(cursor)}}`);
    const { bounds, members } = await slicedPage(page, LISTS[method], limits, refuse);
    const [ttl, scope, next] = members;
    await eachTurn(bounds, (start, end) => {
      bytes += end - start;
      if (items.length >= limits.items) refuse('too_many_items');
      if (bytes > limits.bytes) refuse('list_too_large');
      // A copy: a view would keep the whole page in memory for as long as one item lives.
      const raw = Buffer.from(page.subarray(start, end));
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

/** By reason: what is said of the list, and the limit it is beyond; undefined for one that all lists share. */
const refusals = {
  too_many_items: ['has too many items', 'items'],
  item_too_large: ['has an item that is too large', 'itemBytes'],
  list_too_large: ['is too large', 'bytes'],
  page_too_large: ['has a page with a member that is too large', undefined],
} as const;

const reasonOf: Readonly<Record<PageFault, keyof typeof refusals>> = {
  element_too_large: 'item_too_large',
  too_many_elements: 'too_many_items',
  member_too_large: 'page_too_large',
};

/** What the page holds, looked at once, a slice in each turn. */
async function slicedPage(
  page: Buffer,
  list: string,
  { itemBytes }: ListLimits,
  refuse: (reason: keyof typeof refusals) => never,
): Promise<Page> {
  // It came in with this turn, and was looked at then.
  if (page.length > turnBytes) await nextTurn();
  // No list may have more elements, of whatever kind.
  const limits = {
    sliceBytes: turnBytes,
    elementBytes: itemBytes,
    elements: LIMITS.listItems,
    memberBytes: memberBytesMax,
  };
  const walk = walkPage(page, list, ['ttlMs', 'cacheScope', 'nextCursor'], limits);
  for (let step = walk.next(); ; step = walk.next()) {
    if (step.done) return typeof step.value === 'string' ? refuse(reasonOf[step.value]) : step.value;
    await nextTurn();
  }
}

/** Visits what lies between each two of the bounds, about as many bytes in each turn. */
async function eachTurn(bounds: readonly number[], visit: (start: number, end: number) => void): Promise<void> {
  const [first = 0] = bounds;
  let turnEnd = first + turnBytes;
  for (let i = 0; i < bounds.length; i += 2) {
    const start = bounds[i] as number;
    if (start >= turnEnd) {
      await nextTurn();
      turnEnd = start + turnBytes;
    }
    visit(start, bounds[i + 1] as number);
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
