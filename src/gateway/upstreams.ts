/** What the gateway needs of a Host, and no more. */

import type { KnownServer } from '../catalog/catalog-server.js';
import type { HostCallOptions, HostRequestOptions, ToolResult } from '../host/host-interface.js';
import type { EraAnswer, Principal } from '../policy/operation.js';
import type { JsonText } from '../wire/frame.js';

export interface Upstreams {
  /** In their order. */
  names(): readonly string[];
  readonly groups: ReadonlyMap<string, readonly string[]>;
  /** The capabilities that can be offered where many servers are, as one JSON object; absent: all there are. */
  readonly carried?: string;
  /** At once and without starting anything; undefined when there is no such server. */
  known(server: string): KnownServer | undefined;
  /** Whether a principal may see the server at all (`tool` undefined), or call this tool of it. Nothing is charged or told. */
  isAllowed(principal: Principal, server: string, tool: string | undefined): boolean;
  /** Principals with the same key are allowed the same, as long as `rulesRevision` stays. */
  accessKey(principal: Principal): string;
  /** Counts up when guards or roles change: whatever was filtered before is to be filtered anew. */
  readonly rulesRevision: number;
  /** Resolves when these servers were seen once since boot, or 1 s has passed; undefined: there is nothing to wait for. */
  startupListing(servers: readonly string[]): Promise<void> | undefined;
  call(server: string, tool: string, args: JsonText, options: HostCallOptions): Promise<ToolResult>;
  /** Guarded, counted and bounded as a call is. What the server answers is an answer, errors too; a HostError is thrown when none came. */
  request(
    server: string,
    method: string,
    params: JsonText | undefined,
    options: HostRequestOptions,
  ): Promise<EraAnswer>;
  /** Holds the server open and tells of each update of the resource until it is given back, over restarts of the server too. */
  subscribe(
    server: string,
    uri: string,
    principal: Principal,
    updated: (params: Buffer) => void,
    instance: string,
  ): Promise<() => void>;
  /** Facts or a list of a server, its state, or what is pinned changed; the new ones can be asked for. Returns what ends it. */
  onKnownChanged(listener: (server: string) => void): () => void;
  /** A client is gone: nothing of its own instances is left to run. */
  endInstance(instance: string): void;
}
