/**
 * What a modern server over HTTP wants repeated in headers: the name of what is asked for, and arguments whose schema says so.
 * Learnt from its list of tools.
 * Not here: what an annotation may say (tool-headers.ts), writing headers (transports/http/).
 *
 * Invariant: of two lists the one that came in later counts, whichever was looked through first; until it was, the one before.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { HttpFacts } from '../wire/channel.js';
import type { JsonText } from '../wire/frame.js';
import { memberBytes, memberString } from '../wire/json-members.js';
import { toBuffer } from '../wire/json-text.js';
import type { ListedItem, ServerList } from './lists.js';
import { nameMember } from './named-by.js';
import { headerValues, type MirroredArgument, scanToolHeaders } from './tool-headers.js';

/** So much of a list of tools is looked through in one turn. */
const turnBytes = 64 * 1024;

export class MirroredHeaders {
  #byTool: ReadonlyMap<string, readonly MirroredArgument[]> = new Map();
  #dropped: ReadonlyMap<string, string> = new Map();
  #lists = 0;

  /** Tools left out of the last list because their annotations are not allowed, with the reason. */
  get dropped(): ReadonlyMap<string, string> {
    return this.#dropped;
  }

  /** Beside a request with these params. */
  of(method: string, params: JsonText | undefined): HttpFacts | undefined {
    const member = nameMember(method);
    if (member === undefined || params === undefined) return undefined;
    const bytes = toBuffer(params);
    const name = memberString(bytes, member);
    if (name === undefined) return undefined;
    return method === 'tools/call' ? this.ofCall(name, memberBytes(bytes, 'arguments')) : { name };
  }

  ofCall(name: string, args: JsonText | undefined): HttpFacts {
    const mirrored = this.#byTool.get(name);
    if (!mirrored?.length || args === undefined) return { name };
    return { name, params: headerValues(mirrored, toBuffer(args)) };
  }

  /** The list without the tools that cannot be called. Many large ones have a turn each. */
  async learn(list: ServerList): Promise<ServerList> {
    const number = ++this.#lists;
    const byTool = new Map<string, readonly MirroredArgument[]>();
    const dropped = new Map<string, string>();
    const items: ListedItem[] = [];
    let bytes = 0;
    for (const item of list.items) {
      const scan = scanToolHeaders(item.raw);
      if (scan.ok) {
        byTool.set(item.key, scan.mirrored);
        items.push(item);
      } else dropped.set(item.key, scan.reason);
      bytes += item.raw.length;
      if (bytes < turnBytes) continue;
      bytes = 0;
      await nextTurn();
    }
    if (number === this.#lists) {
      this.#byTool = byTool;
      this.#dropped = dropped;
    }
    return { ...list, items };
  }
}
