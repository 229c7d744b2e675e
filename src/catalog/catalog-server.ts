/** One server of the catalog: what the catalog needs from the host, and what it knows of the server. */
import type { ServerDefinition } from '../config/server-definition.js';
import type { ListedItem, ListMethod } from '../session/lists.js';
import type { Session } from '../session/session.js';
import type { Snapshot } from '../supervisor/snapshot.js';
import type { Supervisor } from '../supervisor/supervisor.js';
import type { Era } from '../wire/channel.js';

/** Implemented by the host's ManagedServer. */
export interface CatalogServer {
  readonly definition: ServerDefinition;
  readonly supervisor: Supervisor<Session>;
  /** Identity of its program or address (server-origin.ts). */
  readonly origin: string;
  /** Key under which its lists are stored. */
  readonly listsOrigin: string;
  /** The newest tools/list. */
  readonly tools: readonly ListedItem[];
  /** Time limit of the current start, or of the next one. */
  readonly startMs: number;
  /** Holds the server open while `run` runs. */
  whileHeld<T>(run: () => Promise<T>): Promise<T>;
}

/** Facts of the server's last connection. */
export interface KnownFacts {
  readonly era: Era;
  readonly version: string;
  /** A JSON object. */
  readonly capabilities: Buffer;
  readonly serverInfo: Buffer | undefined;
  readonly instructions: string | undefined;
}

export interface KnownList {
  /** A changed tool without approval has its approved text. */
  readonly items: readonly ListedItem[];
  readonly ttlMs: number;
  readonly isPublic: boolean;
}

/** What is known of a server without starting it. */
export interface KnownServer {
  readonly definition: ServerDefinition;
  /** As in its status row. */
  readonly state: Snapshot['state'];
  readonly isReady: boolean;
  /** Undefined: it never ran. */
  readonly facts: KnownFacts | undefined;
  /** A missing list was never read. */
  readonly lists: ReadonlyMap<ListMethod, KnownList>;
  /** Counts up with every change of facts or lists. */
  readonly revision: number;
}
