/**
 * The servers of a host by name: what is registered, and the one that runs under each name.
 * Not here: keeping one running (supervisor/), who needs it (registry.ts), what is known of its lists (catalogue.ts).
 *
 * Invariants: there are never two servers under one name: the old one is gone before the new one starts; a name is registered
 * exactly as long as a server has it; changes of one name come one after the other (turns.ts).
 */

import { originOf } from '../catalog/server-origin.js';
import type { ServerDefinition } from '../config/server-definition.js';
import { isAttached, isOneShot } from '../config/server-spec.js';
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import { KeyedMutex } from '../kernel/keyed-mutex.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { CircuitChanged } from '../policy/breaker.js';
import type { Lease } from '../supervisor/registry.js';
import { notFound, Registry } from '../supervisor/registry.js';
import type { Ledger } from '../supervisor/restart-plan.js';
import type { SupervisorEvent } from '../supervisor/supervisor-events.js';
import { ManagedServer } from './managed-server.js';
import { notAttached, spawnFailed } from './spawn.js';
import type { Predecessor, Supervise } from './supervise.js';

export interface ServersParts {
  readonly clock: Clock;
  readonly supervise: Supervise;
  readonly onCircuit: (server: string) => CircuitChanged;
  /** Nothing that it answered before counts any more. `isSame`: the next of the name is the same, with other settings. */
  readonly forget: (server: string, isSame: boolean) => void;
  /** Another one has taken the name, of this one if anybody had it. */
  readonly recall: (managed: ManagedServer, before: ManagedServer | undefined) => void;
}

export class Servers {
  readonly registry: Registry<ServerDefinition>;
  readonly #parts: ServersParts;
  readonly #byName = new Map<string, ManagedServer>();
  readonly #turns = new KeyedMutex();
  #isClosed = false;
  /** The one that was asked for last; none once anything about the names has changed. */
  #last: ManagedServer | undefined;

  constructor(parts: ServersParts) {
    this.#parts = parts;
    this.registry = new Registry({ clock: parts.clock, onIdle: (name) => this.find(name)?.supervisor.idle() });
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Sorted. */
  names(): string[] {
    return this.registry.list().map(({ name }) => name);
  }

  find(name: string): ManagedServer | undefined {
    // Each stage of a call asks for the same server, one right after the other.
    const last = this.#last;
    if (last?.definition.name === name) return last;
    const managed = this.#byName.get(name);
    if (managed && !this.#isClosed) this.#last = managed;
    return managed;
  }

  /** Throws when it is not there, or the host is closed. */
  get(name: string): ManagedServer {
    const last = this.#last;
    if (last?.definition.name === name) return last;
    this.mustBeOpen(name);
    const managed = this.find(name);
    if (!managed) throw notFound(name);
    return managed;
  }

  mustBeOpen(server: string): void {
    if (!this.#isClosed) return;
    const shown = neutraliseLine(server, LIMITS.quotedChars);
    throw new HostError('server_stopped', `server '${shown}' is not called: the host is closed`, {
      server,
      reason: 'closed',
      execution: 'not_executed',
    });
  }

  /** Holds the server open until it is given back; resolves when it is ready. */
  async lease(name: string): Promise<Lease> {
    const lease = this.registry.lease(name);
    try {
      await this.ready(name);
      return lease;
    } catch (error) {
      lease.release();
      throw error;
    }
  }

  /** Resolves with the server when it is ready; starting it may take all of its start time. */
  async ready(name: string): Promise<ManagedServer> {
    const managed = this.get(name);
    await this.#ready(managed);
    return managed;
  }

  async #ready({ supervisor, startMs }: ManagedServer): Promise<void> {
    await supervisor.acquire(this.#parts.clock.nowMs() + startMs, undefined, startMs);
  }

  /** One of the configuration: nobody waits for it, and a failure is told. */
  declare(definition: ServerDefinition, onProblem: (error: unknown) => void): void {
    try {
      this.mustBeOpen(definition.name);
      if (this.#register(definition, false) === 'unchanged') return;
      begin(this.#put(definition));
    } catch (error) {
      onProblem(error);
    }
  }

  /**
   * One of a configuration that was read again, in the place of the one of its name that may be replaced; throws when it may not.
   * It starts when that one is gone, if it is eager or the old one is held. The same definition again changes nothing, and neither
   * does one that is no longer wanted when its turn comes.
   */
  redeclare(
    definition: ServerDefinition,
    mustBeReplaceable: (before: ServerDefinition) => void,
    isWanted: () => boolean,
  ): Promise<'added' | 'unchanged' | 'replaced'> {
    const { name } = definition;
    return this.#turns.take(name, async () => {
      this.mustBeOpen(name);
      if (!isWanted()) return 'unchanged';
      const before = this.find(name);
      // Asked now: another server may have taken the name while this waited for its turn.
      if (before) mustBeReplaceable(before.definition);
      const outcome = this.#register(definition, true);
      if (outcome === 'unchanged') return outcome;
      const gone = before?.dispose(true);
      const managed = this.#put(definition, gone && { gone });
      if (definition.isEnabled && this.registry.held(name).binding > 0) managed.supervisor.begin();
      return outcome;
    });
  }

  /**
   * Nothing has the name from here on, unless the server that has it when its turn comes is not meant; resolves when nothing of
   * the server runs.
   */
  remove(name: string, isMeant: (definition: ServerDefinition) => boolean): Promise<void> {
    return this.#turns.take(name, async () => {
      const managed = this.find(name);
      if (this.#isClosed || !managed || !isMeant(managed.definition)) return;
      this.#byName.delete(name);
      this.#last = undefined;
      this.registry.remove(name);
      this.#parts.forget(name, false);
      await managed.dispose();
    });
  }

  /** Throws when there is no server of that name, or it was not attached. */
  mustBeAttached(name: string): void {
    if (!isAttached(this.get(name).definition.spec)) throw notAttached(name);
  }

  /** Removes an attached server. */
  async detach(name: string): Promise<void> {
    this.mustBeAttached(name);
    // At once: an `attach` of this name that is still waiting for its server fails now, and not when its time is over.
    const stopped = this.get(name).supervisor.stop();
    await Promise.all([stopped, this.remove(name, ({ spec }) => isAttached(spec))]);
  }

  /**
   * Resolves when it is ready, or if it is lazy when it may be started. Otherwise all is as it was before: what it was to
   * replace is there again, and runs if it did.
   */
  spawn(definition: ServerDefinition, replace: boolean): Promise<void> {
    return this.#turns.take(definition.name, () => this.#spawn(definition, replace));
  }

  async #spawn(definition: ServerDefinition, replace: boolean): Promise<void> {
    const { name } = definition;
    this.mustBeOpen(name);
    const before = this.find(name);
    const outcome = this.#register(definition, replace);
    if (before && outcome === 'unchanged') {
      if (isStopped(before)) await unstop(before);
      return this.#up(before);
    }
    // No wait up to here and none before the new one has its place: nobody ever finds the name without a server.
    const earlier = before && earlierOf(before);
    const gone = before?.dispose(true);
    const managed = this.#put(definition, gone === undefined ? undefined : { gone });
    try {
      begin(managed);
      await gone;
      this.mustBeOpen(name);
      await this.#up(managed);
    } catch (error) {
      await this.#takeBack(managed, earlier);
      throw spawnFailed(error, definition, earlier?.definition);
    }
  }

  async #up(managed: ManagedServer): Promise<void> {
    if (isEager(managed)) await this.#ready(managed);
  }

  /** The new one failed: removes it and brings back what was there before. */
  async #takeBack(failed: ManagedServer, earlier: Earlier | undefined): Promise<void> {
    const { name } = failed.definition;
    // Whoever stopped the new one did not ask for the old one to run.
    const wasStopped = isStoppedOnPurpose(failed);
    const gone = failed.dispose(earlier !== undefined);
    if (!this.#isClosed && earlier) {
      const { definition, ledger } = earlier;
      this.#register(definition, true);
      const { supervisor } = this.#put(definition, { gone, ledger });
      if (earlier.was === 'stopped' || wasStopped) void supervisor.stop();
      else if (earlier.was === 'running') supervisor.begin();
    } else if (!this.#isClosed) {
      this.#byName.delete(name);
      this.#last = undefined;
      this.registry.remove(name);
      this.#parts.forget(name, false);
    }
    await gone;
  }

  #register(definition: ServerDefinition, replace: boolean): 'added' | 'unchanged' | 'replaced' {
    const { name, isLazy, keepAliveMs, card } = definition;
    return this.registry.register({ name, spec: definition, isLazy, keepAliveMs, card }, { replace });
  }

  /** Gives the registered name to a new server, which starts nothing before its predecessor is gone. */
  #put(definition: ServerDefinition, predecessor?: Predecessor): ManagedServer {
    const { name } = definition;
    const { supervise, onCircuit, forget, recall, clock } = this.#parts;
    const before = this.#byName.get(name);
    forget(name, before?.origin === originOf(definition.spec));
    const { supervisor, auth } = supervise(definition, predecessor);
    const managed = new ManagedServer(
      definition,
      supervisor,
      this.registry.callHold(name),
      clock,
      auth,
      onCircuit(name),
    );
    this.#byName.set(name, managed);
    this.#last = undefined;
    recall(managed, before);
    return managed;
  }

  /** What the state of a server means for those who count on it. */
  observe({ server, ...event }: SupervisorEvent): void {
    if (event.kind !== 'state') return;
    if (event.to === 'ready' && event.from === 'connecting') {
      // The handshake of a new run was the probe. A suspect that answered is the run it was before.
      this.find(server)?.forgetCircuit();
      this.registry.opened(server);
    } else if (isUp(event.from) && !isUp(event.to)) {
      // Who is not running is not judged by calls: whether it can be had is for its supervisor to say.
      this.find(server)?.forgetCircuit();
      this.registry.closed(server);
    }
  }

  /** Nobody gets a server from here on, and nothing is started; resolves when nothing runs, replaced ones included. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#last = undefined;
    const ends = await Promise.allSettled([...this.#byName.values()].map(async (managed) => managed.dispose()));
    await this.#turns.over();
    // Whatever is wrong with one of them, all have ended before it is told.
    for (const end of ends) if (end.status === 'rejected') throw end.reason;
  }
}

/** What must be known of a server to bring it back. */
interface Earlier {
  readonly definition: ServerDefinition;
  readonly ledger: Ledger;
  readonly was: 'stopped' | 'running' | 'at rest';
}

function earlierOf(managed: ManagedServer): Earlier {
  const { definition, supervisor } = managed;
  const { state } = supervisor.snapshot();
  const isAtRest = state === 'registered' || state === 'disabled';
  // A connection that was closed for its successor cannot be opened again.
  const isOver = isStopped(managed) || isOneShot(definition.spec);
  const was = isOver ? 'stopped' : isAtRest ? 'at rest' : 'running';
  return { definition, ledger: supervisor.ledger, was };
}

const isEager = ({ definition }: ManagedServer): boolean => !definition.isLazy && definition.isEnabled;

function begin(managed: ManagedServer): void {
  if (isEager(managed)) managed.supervisor.begin();
}

const isStopped = ({ supervisor }: ManagedServer): boolean => supervisor.refusal()?.code === 'server_stopped';

/** A one-shot server is also stopped by its failure, which is then the cause. */
function isStoppedOnPurpose({ supervisor }: ManagedServer): boolean {
  const refusal = supervisor.refusal();
  return refusal?.code === 'server_stopped' && refusal.cause === undefined;
}

/** A lazy one may be started again, any other is. */
async function unstop({ definition, supervisor }: ManagedServer): Promise<void> {
  if (definition.isLazy) await supervisor.reload();
  else supervisor.start();
}

const isUp = (state: string): boolean => state === 'ready' || state === 'suspect';
