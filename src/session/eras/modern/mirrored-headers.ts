/**
 * Copies parts of a request into HTTP headers, as modern servers require: the name of the tool, prompt or resource, and
 * annotated arguments (`x-mcp-header`). The annotations are in the tool list.
 * Not here: the allowed annotations (tool-headers.ts), writing headers (transports/http/).
 *
 * Invariant: the newest list wins, even over an older list whose scan ends later. Until its scan ends, the old list is used.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isHostError } from '../../../kernel/errors.js';
import type { HttpFacts } from '../../../wire/channel.js';
import type { JsonText } from '../../../wire/frame.js';
import { memberBytes, memberString } from '../../../wire/json-members.js';
import { toBuffer } from '../../../wire/json-text.js';
import { METHODS } from '../../../wire/methods.js';
import type { Answer } from '../../../wire/peer-interface.js';
import type { ListedItem, ServerList } from '../../lists.js';
import { readRpcError } from '../../rpc-response.js';
import type { RequestMirror } from '../server-era.js';
import { MODERN_ERRORS } from './protocol.js';
import { headerValues, type MirroredArgument, scanToolHeaders } from './tool-headers.js';

/** Bytes of a list that are scanned in one turn of the event loop. */
const turnBytes = 64 * 1024;

export class MirroredHeaders implements RequestMirror {
  #byTool: ReadonlyMap<string, readonly MirroredArgument[]> = new Map();
  #dropped: ReadonlyMap<string, string> = new Map();
  #lists = 0;

  get dropped(): ReadonlyMap<string, string> {
    return this.#dropped;
  }

  headersOf(method: string, params: JsonText | undefined): HttpFacts | undefined {
    const member = METHODS.get(method)?.nameMember;
    if (member === undefined || params === undefined) return undefined;
    const bytes = toBuffer(params);
    const name = memberString(bytes, member);
    if (name === undefined) return undefined;
    return method === 'tools/call' ? this.headersOfCall(name, memberBytes(bytes, 'arguments')) : { name };
  }

  headersOfCall(name: string, args: JsonText | undefined): HttpFacts {
    const mirrored = this.#byTool.get(name);
    if (!mirrored?.length || args === undefined) return { name };
    return { name, params: headerValues(mirrored, toBuffer(args)) };
  }

  isMismatch(outcome: Answer | unknown): boolean {
    if (isHostError(outcome)) return outcome.details.rpcCode === MODERN_ERRORS.headerMismatch;
    const { kind, bytes } = outcome as Answer;
    return kind === 'error' && readRpcError(bytes).code === MODERN_ERRORS.headerMismatch;
  }

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
