/** What the gateway needs of a Host, and no more. */

import type { KnownServer } from '../catalog/catalog-server.js';
import type { HostCallOptions, HostRequestOptions, ToolResult } from '../host/host-interface.js';
import type { EraAnswer, Principal } from '../policy/operation.js';
import type { JsonText } from '../wire/frame.js';

export interface Upstreams {
  /** In their order. */
  names(): readonly string[];
  readonly groups: ReadonlyMap<string, readonly string[]>;
  /** The capabilities of endpoints with many servers: one JSON object; absent: all. */
  readonly carried?: string;
  /** At once and without starting anything; undefined when there is no such server. */
  known(server: string): KnownServer | undefined;
  /** Whether a principal may see the server at all (`tool` undefined), or call this tool of it. Nothing is charged or reported. */
  isAllowed(principal: Principal, server: string, tool: string | undefined): boolean;
  /** Principals with the same key are allowed the same, as long as `rulesRevision` stays. */
  accessKey(principal: Principal): string;
  /** Counts changes of guards and roles. */
  readonly rulesRevision: number;
  /** Resolves when these servers were seen once since boot, or 1 s has passed; undefined: there is nothing to wait for. */
  startupListing(servers: readonly string[]): Promise<void> | undefined;
  call(server: string, tool: string, args: JsonText, options: HostCallOptions): Promise<ToolResult>;
  /** Guarded, counted and bounded like a call. Resolves with errors of the server too; rejects with a HostError without an answer. */
  request(
    server: string,
    method: string,
    params: JsonText | undefined,
    options: HostRequestOptions,
  ): Promise<EraAnswer>;
  /** Leases the server and reports each update of the resource until it is released, also over restarts of the server. */
  subscribe(
    server: string,
    uri: string,
    principal: Principal,
    updated: (params: Buffer) => void,
    instance: string,
  ): Promise<() => void>;
  /** Facts, lists, state or pins of a server changed. Returns an unsubscribe function. */
  onKnownChanged(listener: (server: string) => void): () => void;
  /** A client is gone: ends its own instances. */
  endInstance(instance: string): void;
}
