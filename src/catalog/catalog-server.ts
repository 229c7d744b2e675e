/** Types of the catalog: a server as the host passes it in, and the facts and lists that are known of it. */
import type { ServerDefinition } from '../config/server-definition.js';
import type { ServerFacts } from '../session/eras/server-era.js';
import type { ListedItem, ListMethod } from '../session/lists.js';
import type { Session } from '../session/session.js';
import type { Snapshot } from '../supervisor/snapshot.js';
import type { Supervisor } from '../supervisor/supervisor.js';

/** Implemented by the host's ManagedServer. */
export interface CatalogServer {
  readonly definition: ServerDefinition;
  readonly supervisor: Supervisor<Session>;
  /** Hash of its program or address (server-origin.ts). */
  readonly origin: string;
  readonly listsOrigin: string;
  readonly tools: readonly ListedItem[];
  /** Time limit of the current start, or of the next one. */
  readonly startMs: number;
  /** Keeps the server running until `run` settles. */
  keepRunningDuring<T>(run: () => Promise<T>): Promise<T>;
}

/** Facts of the server's last connection. */
export type KnownFacts = Omit<ServerFacts, 'raw'>;

export interface KnownList {
  readonly items: readonly ListedItem[];
  readonly ttlMs: number;
  readonly isPublic: boolean;
}

/** An item as clients see it; repaired if its server's text has a fault (list-repair.ts). */
export interface ShownItem extends ListedItem {
  /** Text for endpoints that join many servers, if it differs from `raw`. */
  readonly joined?: Buffer;
  /** True: clients of protocol revisions before 2026-07-28 refuse the output schema. */
  readonly hasModernOutput?: boolean;
}

export interface ShownList extends KnownList {
  /** A changed tool that is not approved has the text that was approved before. */
  readonly items: readonly ShownItem[];
}

/** Known facts and lists of a server. Reading them starts nothing. */
export interface KnownServer {
  readonly definition: ServerDefinition;
  readonly state: Snapshot['state'];
  readonly isReady: boolean;
  /** Undefined: the server never ran. */
  readonly facts: KnownFacts | undefined;
  /** A list is missing if it was never read, or if the server is stopped or disabled. */
  readonly lists: ReadonlyMap<ListMethod, ShownList>;
  /** Increases with every change of facts or lists. */
  readonly revision: number;
  /** Increases with every new session, in which settings of clients, such as the log level, are lost. 0: none yet. */
  readonly session: number;
}
