/**
 * Reads a paged list to its end. Every item stays as the bytes that the server sent.
 * Invariants: pages, items and bytes are bounded while the list is read, not after. A large page is scanned in slices, one per
 * turn of the event loop. A list that is too large is refused before the rest is scanned.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { memberString, stringOf } from '../wire/json-members.js';
import { type Page, type PageFault, walkPage } from '../wire/page-walk.js';

/** List method → the member that contains its items, and the member of an item that identifies it. */
const LISTS = {
  'tools/list': ['tools', 'name'],
  'resources/list': ['resources', 'uri'],
  'resources/templates/list': ['resourceTemplates', 'uriTemplate'],
  'prompts/list': ['prompts', 'name'],
} as const;

export type ListMethod = keyof typeof LISTS;

export const isListMethod = (method: unknown): method is ListMethod =>
  typeof method === 'string' && Object.hasOwn(LISTS, method);

export interface ListedItem {
  /** `name`, or `uri` / `uriTemplate` for resources; empty if the server sent none. */
  readonly key: string;
  readonly raw: Buffer;
}

export interface ServerList {
  readonly items: readonly ListedItem[];
  readonly pages: number;
  /** Shortest lifetime of all pages; 0 if a page declares none. */
  readonly ttlMs: number;
  readonly cacheScope: 'public' | 'private';
}

const cursorCharsMax = 4_096;
/** Bytes of a page that are scanned in one turn of the event loop. */
const turnBytes = 256 * 1024;
const itemCostBytes = 64;
/** Limit for each member of a page besides its list, such as the cursor. */
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
const otherLimits: ListLimits = {
  items: LIMITS.listItems,
  bytes: LIMITS.listBytes,
  itemBytes: LIMITS.listItemBytes,
};

export async function readList(
  server: string,
  method: ListMethod,
  fetchPage: (params: string | undefined) => Promise<Buffer>,
): Promise<ServerList> {
  const [itemsMember, keyMember] = LISTS[method];
  const items: ListedItem[] = [];
  const cursors = new Set<string>();
  let ttlMs = Number.POSITIVE_INFINITY;
  let isPublic = true;
  let bytes = 0;
  const limits = method === 'tools/list' ? toolLimits : otherLimits;
  const refuse = (reason: keyof typeof refusals): never => {
    const [what, limit] = refusals[reason];
    throw broken(server, method, reason, what, limit === undefined ? memberBytesMax : limits[limit], fewerItemsHint);
  };
  let cursor: string | undefined;
  for (let pages = 1; ; pages++) {
    const page = await fetchPage(cursor === undefined ? undefined : `{"cursor":${JSON.stringify(cursor)}}`);
    const { bounds, members } = await slicedPage(page, itemsMember, limits, refuse);
    const [ttl, scope, next] = members;
    if (page.length > turnBytes) await nextTurn();
    await eachTurn(bounds, (start, end) => {
      bytes += end - start;
      if (items.length >= limits.items) refuse('too_many_items');
      if (bytes > limits.bytes) refuse('list_too_large');
      // A copy: a view would keep the whole page in memory for as long as one item lives.
      const raw = Buffer.from(page.subarray(start, end));
      items.push({ key: memberString(raw, keyMember) ?? '', raw });
    });
    ttlMs = Math.min(ttlMs, ttlOf(ttl));
    isPublic &&= scope !== undefined && stringOf(scope) === 'public';
    cursor = next && stringOf(next);
    if (cursor === undefined) return { items, pages, ttlMs, cacheScope: isPublic ? 'public' : 'private' };
    if (cursor.length > cursorCharsMax)
      throw broken(server, method, 'cursor_too_long', 'sent a huge cursor', cursorCharsMax);
    if (cursors.has(cursor)) throw broken(server, method, 'repeated_cursor', 'sent the same cursor twice');
    if (pages >= LIMITS.listPages)
      throw broken(server, method, 'too_many_pages', `has more than ${LIMITS.listPages} pages`, LIMITS.listPages);
    cursors.add(cursor);
  }
}

/** Reason → error text and the exceeded limit. Undefined: the limit that all lists share. */
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

async function slicedPage(
  page: Buffer,
  list: string,
  { itemBytes }: ListLimits,
  refuse: (reason: keyof typeof refusals) => never,
): Promise<Page> {
  if (page.length > turnBytes) {
    // The decoder scanned the page in this turn. Two turns pass, so that other messages are read in between.
    await nextTurn();
    await nextTurn();
  }
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

/** Visits the items, with about the same number of bytes per turn. */
async function eachTurn(bounds: readonly number[], visit: (start: number, end: number) => void): Promise<void> {
  let cost = 0;
  for (let i = 0; i < bounds.length; i += 2) {
    const [start, end] = [bounds[i] as number, bounds[i + 1] as number];
    if (cost >= turnBytes) {
      await nextTurn();
      cost = 0;
    }
    cost += end - start + itemCostBytes;
    visit(start, end);
  }
}

function ttlOf(text: Buffer | undefined): number {
  const ttlMs = Number(text?.toString('utf8'));
  return Number.isInteger(ttlMs) && ttlMs > 0 ? ttlMs : 0;
}

const fewerItemsHint = 'the server can be called, but its list is not used; ask its author to list less';

function broken(
  server: string,
  method: string,
  reason: string,
  what: string,
  limit?: number,
  hint = 'the paging of the server is broken; report it to its author',
): HostError {
  return new HostError('protocol_error', `${method} of server '${server}' ${what}`, {
    server,
    reason,
    ...(limit === undefined ? {} : { limit }),
    hint,
  });
}
