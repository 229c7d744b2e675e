/**
 * The runs of all servers, by session and by name. Begins and ends the work of a run (server-run.ts) when the state of its
 * server changes.
 * Not here: start and end of a run (supervisor/), subscribers (subscriptions.ts).
 */
import type { Session } from '../session/session.js';
import type { SupervisorEvent } from '../supervisor/supervisor-events.js';
import type { CatalogServer } from './catalog-server.js';
import { type RunContext, ServerRun } from './server-run.js';

export class ServerRuns {
  readonly #context: RunContext;
  readonly #bySession = new WeakMap<Session, ServerRun>();
  readonly #byName = new Map<string, ServerRun>();

  constructor(context: RunContext) {
    this.#context = context;
  }

  /**
   * Call it when a session was opened, before its first request. `instance`: key of a client's instance, which uses the lists
   * of the shared server. `announce`: handles a notification as if the server had sent it.
   */
  opened(server: string, session: Session, announce: (method: string) => void, instance?: string): ServerRun {
    const owner = instance === undefined ? this.#context.findServer(server) : undefined;
    const run = new ServerRun(this.#context, session, instance ?? server, owner, announce);
    this.#bySession.set(session, run);
    run.begin();
    return run;
  }

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
    if (to === 'registered' && this.#context.uris(server).length > 0) this.#restart(server);
    this.#context.listings.changed(server);
  }

  #ready(name: string): void {
    const server = this.#context.findServer(name);
    const session = server?.supervisor.current?.connection;
    const run = session && this.#bySession.get(session);
    if (!server || !run) return;
    this.#byName.set(name, run);
    run.ready();
  }

  #over(name: string): void {
    this.#byName.get(name)?.end();
    this.#byName.delete(name);
  }

  /** Starts an idle server with subscribers again. */
  #restart(name: string): void {
    // In a later tick, because the state has not settled yet.
    queueMicrotask(() => {
      const server = this.#context.findServer(name);
      if (server?.supervisor.snapshot().state === 'registered') server.supervisor.begin();
    });
  }
}

const isUp = (state: string): boolean => state === 'ready' || state === 'suspect';
