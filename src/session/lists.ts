/**
 * Reads a paged list to its end and keeps every item as the bytes the server sent.
 */
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { elements, memberBytes, memberString, memberText } from '../wire/json-members.js';

/** List method → the member that holds its items. */
export const LISTS = {
  'tools/list': 'tools',
  'resources/list': 'resources',
  'resources/templates/list': 'resourceTemplates',
  'prompts/list': 'prompts',
} as const;

export type ListMethod = keyof typeof LISTS;

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

const itemsMax = 50_000;
const listBytesMax = 64 * 1024 * 1024;

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
  let cursor: string | undefined;
  for (let pages = 1; ; pages++) {
    const page = await fetchPage(cursor === undefined ? undefined : `{"cursor":${JSON.stringify(cursor)}}`);
    for (const view of itemsOf(page, method)) {
      // A copy: a view would keep the whole page, and all pages, in memory for as long as one item lives.
      const raw = Buffer.from(view);
      bytes += raw.length;
      items.push({ key: memberString(raw, keyMembers[method]) ?? '', raw });
    }
    ttlMs = Math.min(ttlMs, ttlOf(page));
    isPublic &&= memberString(page, 'cacheScope') === 'public';
    cursor = memberString(page, 'nextCursor');
    if (cursor === undefined) return { items, pages, ttlMs, cacheScope: isPublic ? 'public' : 'private' };
    if (cursors.has(cursor)) throw broken(server, method, 'repeated_cursor', 'sent the same cursor twice');
    if (pages >= LIMITS.listPages) throw broken(server, method, 'too_many_pages', 'has no end', LIMITS.listPages);
    if (items.length > itemsMax) throw broken(server, method, 'too_many_items', 'has too many items', itemsMax);
    if (bytes > listBytesMax) throw broken(server, method, 'list_too_large', 'is too large', listBytesMax);
    cursors.add(cursor);
  }
}

function itemsOf(page: Buffer, method: ListMethod): Buffer[] {
  const array = memberBytes(page, LISTS[method]);
  return (array && elements(array)) ?? [];
}

function ttlOf(page: Buffer): number {
  const ttlMs = Number(memberText(page, 'ttlMs'));
  return Number.isInteger(ttlMs) && ttlMs > 0 ? ttlMs : 0;
}

function broken(server: string, method: string, reason: string, what: string, limit?: number): HostError {
  return new HostError('protocol_error', `${method} of server '${server}' ${what}`, {
    server,
    reason,
    ...(limit === undefined ? {} : { limit }),
    hint: 'the server’s paging is broken; report it to its author',
  });
}
