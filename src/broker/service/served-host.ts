/** What the service needs of a Host, and no more. */

import type { KnownServer } from '../../catalog/catalog-server.js';
import type { HostCallOptions, ToolResult } from '../../host/host-interface.js';
import type { Principal } from '../../policy/operation.js';

export interface ServedHost {
  /** In their order. */
  names(): readonly string[];
  /** At once and without starting anything. */
  known(server: string): KnownServer | undefined;
  isAllowed(principal: Principal, server: string, tool: string | undefined): boolean;
  /** Callers in this role are refused everything, because the configuration of the host does not list it. */
  isUnlistedRole?(role: string): boolean;
  /** Counts up when guards or roles change. */
  readonly rulesRevision: number;
  /** Resolves when these servers were seen once since boot, or 5 s have passed; undefined: there is nothing to wait for. */
  startupListing(servers?: readonly string[]): Promise<void> | undefined;
  /** Tools are about to be listed without starting a server: those that were never seen are learned in the background. */
  learnTools?(): void;
  onKnownChanged(listener: (server: string) => void): () => void;
  /** The tool is read-only or idempotent, and its server's word for it is trusted. */
  mayRunTwice(server: string, tool: string): boolean;
  call(server: string, tool: string, args: Buffer, options: HostCallOptions): Promise<ToolResult>;
}
