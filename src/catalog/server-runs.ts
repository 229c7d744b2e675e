/**
 * The run of each server that has one, and what it brings to what is known of the server.
 * Not here: what is done in a run (server-run.ts), starting and ending one (supervisor/).
 *
 * Invariant: what a run brings counts only for the server that it was opened for, never for another of its name.
 */
import type { Clock } from '../kernel/clock.js';
import type { ServerFacts } from '../session/eras/server-era.js';
import type { Session } from '../session/session.js';
import type { SupervisorEvent } from '../supervisor/supervisor-events.js';
import type { CatalogServer, KnownFacts } from './catalog-server.js';
import type { Listings } from './listings.js';
import { ServerRun } from './server-run.js';

export interface ServerRunsParts {
  readonly clock: Clock;
  readonly findServer: (name: string) => CatalogServer | undefined;
  readonly known: Pick<Listings, 'learnFacts' | 'learnList' | 'keep' | 'changed'>;
  /** Resources of the server, or of the instance with this key, that somebody subscribed to, now. */
  readonly uris: (server: string) => readonly string[];
  readonly clean: (text: string) => string;
  readonly onProblem: (error: unknown) => void;
}

export class ServerRuns {
  readonly #parts: ServerRunsParts;
  readonly #bySession = new WeakMap<Session, ServerRun>();
  /** Those that are up. */
  readonly #byName = new Map<string, ServerRun>();

  constructor(parts: ServerRunsParts) {
    this.#parts = parts;
  }

  /** A session is open, and nothing was asked of it yet. `announce`: says something as if the server had. */
  opened(name: string, session: Session, announce: (method: string) => void): ServerRun {
    const { clock, findServer, known, uris, clean, onProblem } = this.#parts;
    const managed = findServer(name);
    const run = new ServerRun({
      clock,
      session,
      hasLists: true,
      learn: (method, { items, ttlMs, cacheScope }) => {
        if (!managed || findServer(name) !== managed) return;
        known.learnList(managed, method, { items, ttlMs, isPublic: cacheScope === 'public' });
      },
      keep: () => managed && known.keep(managed),
      uris: () => uris(name),
      announce,
      clean,
      onProblem,
    });
    this.#bySession.set(session, run);
    run.begin();
    return run;
  }

  /** The same for the instance of one client, which is known by a key: all there is to it is what that client subscribed to. */
  openedOf(instance: string, session: Session): ServerRun {
    const { clock, uris, clean, onProblem } = this.#parts;
    const run = new ServerRun({
      clock,
      session,
      hasLists: false,
      learn: () => {},
      keep: () => {},
      uris: () => uris(instance),
      announce: () => {},
      clean,
      onProblem,
    });
    this.#bySession.set(session, run);
    run.begin();
    return run;
  }

  /** The one that can be spoken to now. */
  of({ supervisor }: Pick<CatalogServer, 'supervisor'>): ServerRun | undefined {
    const session = supervisor.current?.connection;
    return session && this.#bySession.get(session);
  }

  observe(event: SupervisorEvent): void {
    if (event.kind !== 'state') return;
    const { server, from, to } = event;
    if (isUp(from) && isUp(to)) return;
    if (isUp(to)) this.#ready(server);
    else if (isUp(from)) this.#over(server);
    if (to === 'registered' && this.#parts.uris(server).length > 0) this.#begin(server);
    this.#parts.known.changed(server);
  }

  #ready(name: string): void {
    const managed = this.#parts.findServer(name);
    const session = managed?.supervisor.current?.connection;
    if (!managed || !session) return;
    const run = this.#bySession.get(session);
    if (!run) return;
    this.#parts.known.learnFacts(managed, kept(session.facts), run.offeredLists);
    this.#byName.set(name, run);
    run.ready();
  }

  #over(name: string): void {
    this.#byName.get(name)?.end();
    this.#byName.delete(name);
  }

  /** It came to rest, and somebody still wants to hear of its resources. */
  #begin(name: string): void {
    // In a tick of its own: it has not settled yet.
    queueMicrotask(() => {
      const managed = this.#parts.findServer(name);
      if (managed?.supervisor.snapshot().state === 'registered') managed.supervisor.begin();
    });
  }
}

const isUp = (state: string): boolean => state === 'ready' || state === 'suspect';

/** Of their own: the bytes are views of a whole answer. */
const kept = ({ era, version, capabilities, serverInfo, instructions }: ServerFacts): KnownFacts => ({
  era,
  version,
  capabilities: Buffer.from(capabilities),
  serverInfo: serverInfo && Buffer.from(serverInfo),
  instructions,
});
