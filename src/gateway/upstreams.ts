/** The part of a Host that the gateway uses. */
import type { KnownServer } from '../catalog/catalog-server.js';
import type { HostCallOptions, HostRequestOptions, ToolResult } from '../host/host-interface.js';
import type { EraAnswer, Principal } from '../policy/operation.js';
import type { JsonText } from '../wire/frame.js';

export interface Upstreams {
  /** Server names, in the order in which lists show them. */
  names(): readonly string[];
  readonly groups: ReadonlyMap<string, readonly string[]>;
  /** Capabilities of endpoints with many servers, as one JSON object. Default: all that the gateway can carry. */
  readonly carried?: string;
  /** Facts that are known without starting the server; undefined if there is no such server. */
  known(server: string): KnownServer | undefined;
  /** Whether a principal may see the server (`tool` undefined) or call the tool. Charges and reports nothing. */
  isAllowed(principal: Principal, server: string, tool: string | undefined): boolean;
  /** Principals with equal access keys have equal rights until `rulesRevision` changes. */
  accessKey(principal: Principal): string;
  /** Number of changes to guards and roles. */
  readonly rulesRevision: number;
  /** Resolves when the first listings of these servers have settled, or after 1 s; undefined if none is pending. */
  startupListing(servers: readonly string[]): Promise<void> | undefined;
  call(server: string, tool: string, args: JsonText, options: HostCallOptions): Promise<ToolResult>;
  /** Passes the same policy as a call. Resolves with a result or an error of the server; rejects with a HostError otherwise. */
  request(
    server: string,
    method: string,
    params: JsonText | undefined,
    options: HostRequestOptions,
  ): Promise<EraAnswer>;
  /** Leases the server and reports each update of the resource until the caller releases it. Survives server restarts. */
  subscribe(
    server: string,
    uri: string,
    principal: Principal,
    updated: (params: Buffer) => void,
    instance: string,
  ): Promise<() => void>;
  /** Calls `listener` when facts, lists, state or pins of a server change. Returns an unsubscribe function. */
  onKnownChanged(listener: (server: string) => void): () => void;
  /** Ends the instances of a client that has gone. */
  endInstance(instance: string): void;
}
