/** The part of a Host that the service uses. */

import type { KnownServer } from '../../catalog/catalog-server.js';
import type { HostCallOptions, ToolResult } from '../../host/host-interface.js';
import type { KeyedCalls } from '../../host/keyed-calls.js';
import type { Principal } from '../../policy/operation.js';

export interface ServedHost {
  /** Servers, in the order of the configuration. */
  names(): readonly string[];
  /** Known facts about a server, without starting it. */
  known(server: string): KnownServer | undefined;
  isAllowed(principal: Principal, server: string, tool: string | undefined): boolean;
  /** True if callers with this role are refused because the configuration does not list it. */
  isUnlistedRole?(role: string): boolean;
  /** Increases when guards or roles may have changed. */
  readonly rulesRevision: number;
  /** Resolves when these servers were listed once, or after a time limit. Undefined: no wait. */
  startupListing(servers?: readonly string[]): Promise<void> | undefined;
  /** Starts servers with unknown tools once in the background to list them. */
  learnTools?(): void;
  onKnownChanged(listener: (server: string) => void): () => void;
  /** True if a call with an unknown outcome may be repeated: its annotations say so and are trusted. */
  mayRunTwice(server: string, tool: string): boolean;
  /** Runs calls with an `idempotencyKey`; returns the function that restores what was there before. */
  useKeyedCalls?(calls: KeyedCalls): () => void;
  call(server: string, tool: string, args: Buffer, options: HostCallOptions): Promise<ToolResult>;
}
