/**
 * The servers of a host by name: registration, replacement and removal.
 * Not here: restarts (supervisor/), leases (supervisor/registry.ts), lists (list-operations.ts).
 *
 * Invariants: a name never has two servers: the old one has ended before the new one starts. A name is registered exactly as
 * long as it has a server. Changes of one name are serialized.
 */
import { originOf } from '../catalog/server-origin.js';
import type { ServerMarks } from '../catalog/store/server-marks.js';
import type { ServerDefinition } from '../config/server-definition.js';
import { isAttached, isOneShot } from '../config/server-spec.js';
import type { Clock } from '../kernel/clock.js';
import { KeyedMutex } from '../kernel/keyed-mutex.js';
import type { CircuitChanged } from '../policy/breaker.js';
import type { Lease } from '../supervisor/registry.js';
import { notFound, Registry } from '../supervisor/registry.js';
import type { Ledger } from '../supervisor/restart-plan.js';
import type { SupervisorEvent } from '../supervisor/supervisor-events.js';
import { ManagedServer } from './managed-server.js';
import { hostClosed } from './operation-checks.js';
import { notAttached, spawnFailed } from './spawn.js';
import type { Predecessor, Supervise } from './supervise.js';

interface ServersParts {
  readonly clock: Clock;
  readonly supervise: Supervise;
  readonly onCircuit: (server: string) => CircuitChanged;
  /**
   * Drops the data in memory for the name, and ends the instances of its clients: resolves when they have ended. `gone`: the server
   * that had the name; `isSame`: its successor has the same origin.
   */
  readonly forget: (server: string, gone: ManagedServer | undefined, isSame: boolean) => Promise<void>;
  /** Called when a server has taken the name; `before` is the replaced one. */
  readonly restore: (managed: ManagedServer, before: ManagedServer | undefined) => void;
  /** Marks that an operator stopped a configured server. They outlive the host. */
  readonly marks: ServerMarks;
}

export class Servers {
  readonly registry: Registry<ServerDefinition>;
  readonly #parts: ServersParts;
  readonly #byName = new Map<string, ManagedServer>();
  readonly #changes = new KeyedMutex();
  #isClosed = false;
  /** Cache of the last lookup; cleared when a name changes. */
  #last: ManagedServer | undefined;

  constructor(parts: ServersParts) {
    this.#parts = parts;
    this.registry = new Registry({ clock: parts.clock, onIdle: (name) => this.find(name)?.supervisor.idle() });
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  names(): string[] {
    return this.registry.list().map(({ name }) => name);
  }

  find(name: string): ManagedServer | undefined {
    // The stages of one call look up the same server one after the other.
    const last = this.#last;
    if (last?.definition.name === name) return last;
    const managed = this.#byName.get(name);
    if (managed && !this.#isClosed) this.#last = managed;
    return managed;
  }

  /** Throws if the server is unknown or the host is closed. */
  get(name: string): ManagedServer {
    const last = this.#last;
    if (last?.definition.name === name) return last;
    this.mustBeOpen(name);
    const managed = this.find(name);
    if (!managed) throw notFound(name);
    return managed;
  }

  mustBeOpen(server: string): void {
    if (this.#isClosed) throw hostClosed(server);
  }

  /** Keeps the server running until the lease is released; resolves when the server is ready. */
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

  /** Resolves when the server is ready; a start may take its whole start timeout. */
  async ready(name: string): Promise<ManagedServer> {
    const managed = this.get(name);
    await this.#ready(managed);
    return managed;
  }

  async #ready({ supervisor, startMs }: ManagedServer): Promise<void> {
    await supervisor.acquire(this.#parts.clock.nowMs() + startMs, undefined, startMs);
  }

  declare(definition: ServerDefinition, onProblem: (error: unknown) => void): void {
    try {
      this.mustBeOpen(definition.name);
      if (this.#register(definition, false) === 'unchanged') return;
      const managed = this.#put(definition);
      if (!this.#staysStopped(managed)) begin(managed);
    } catch (error) {
      onProblem(error);
    }
  }

  /**
   * Adds or replaces a server of a changed configuration; throws if it may not be replaced. An eager or leased server starts
   * when the old one has ended. Does nothing for an equal definition, or if `isStillNeeded` is false when the change is due.
   */
  redeclare(
    definition: ServerDefinition,
    mustBeReplaceable: (before: ServerDefinition) => void,
    isStillNeeded: () => boolean,
  ): Promise<'added' | 'unchanged' | 'replaced'> {
    const { name } = definition;
    return this.#changes.runExclusive(name, async () => {
      this.mustBeOpen(name);
      if (!isStillNeeded()) return 'unchanged';
      const before = this.find(name);
      // Checked inside the mutex: another server may have taken the name meanwhile.
      if (before) mustBeReplaceable(before.definition);
      const outcome = this.#register(definition, true);
      if (outcome === 'unchanged') return outcome;
      const gone = before?.dispose(true);
      const managed = this.#put(definition, gone && { ended: gone });
      const isStopped = this.#staysStopped(managed);
      if (!isStopped && definition.isEnabled && this.registry.held(name).binding > 0) managed.supervisor.begin();
      return outcome;
    });
  }

  /** A configured server that an operator stopped stays stopped in the next host, and with an edited definition. */
  #staysStopped({ definition: { name }, supervisor }: ManagedServer): boolean {
    if (!this.#parts.marks.has(name, 'stopped')) return false;
    void supervisor.stop();
    return true;
  }

  /**
   * Removes the server of this name if `isMeant` accepts its definition. Resolves when the server and the instances of its
   * clients have ended. The name is free when the server itself has ended.
   */
  async remove(name: string, isMeant: (definition: ServerDefinition) => boolean): Promise<void> {
    let instancesEnded: Promise<void> | undefined;
    await this.#changes.runExclusive(name, async () => {
      const managed = this.find(name);
      if (this.#isClosed || !managed || !isMeant(managed.definition)) return;
      this.#byName.delete(name);
      this.#last = undefined;
      this.registry.remove(name);
      this.#parts.marks.set(name, 'stopped', false);
      instancesEnded = this.#parts.forget(name, managed, false);
      await managed.dispose();
    });
    await instancesEnded;
  }

  mustBeAttached(name: string): void {
    if (!isAttached(this.get(name).definition.spec)) throw notAttached(name);
  }

  async detach(name: string): Promise<void> {
    this.mustBeAttached(name);
    // Stop first: a pending `attach` of this name then fails now instead of at its timeout.
    const stopped = this.get(name).stop();
    await Promise.all([stopped, this.remove(name, ({ spec }) => isAttached(spec))]);
  }

  /** Resolves when an eager server is ready or a lazy one is registered. On failure, restores the replaced server. */
  spawn(definition: ServerDefinition, replace: boolean): Promise<void> {
    return this.#changes.runExclusive(definition.name, () => this.#spawn(definition, replace));
  }

  async #spawn(definition: ServerDefinition, replace: boolean): Promise<void> {
    const { name } = definition;
    this.mustBeOpen(name);
    const before = this.find(name);
    const outcome = this.#register(definition, replace);
    this.#parts.marks.set(name, 'stopped', false);
    if (before && outcome === 'unchanged') {
      if (isStopped(before)) await restartStopped(before);
      return this.#up(before);
    }
    // No await before the new server has the name: a lookup never finds the name without a server.
    const earlier = before && previousOf(before);
    const gone = before?.dispose(true);
    const managed = this.#put(definition, gone === undefined ? undefined : { ended: gone });
    try {
      begin(managed);
      await gone;
      this.mustBeOpen(name);
      await this.#up(managed);
    } catch (error) {
      await this.#restore(managed, earlier);
      throw spawnFailed(error, definition, earlier?.definition);
    }
  }

  async #up(managed: ManagedServer): Promise<void> {
    if (isEager(managed)) await this.#ready(managed);
  }

  async #restore(failed: ManagedServer, earlier: PreviousServer | undefined): Promise<void> {
    const { name } = failed.definition;
    // A requested stop of the new server also applies to the old one.
    const wasStopped = isStoppedOnPurpose(failed);
    const gone = failed.dispose(earlier !== undefined);
    if (!this.#isClosed && earlier) {
      const { definition, ledger } = earlier;
      this.#register(definition, true);
      const { supervisor } = this.#put(definition, { ended: gone, ledger });
      if (earlier.was === 'stopped' || wasStopped) void supervisor.stop();
      else if (earlier.was === 'running') supervisor.begin();
    } else if (!this.#isClosed) {
      this.#byName.delete(name);
      this.#last = undefined;
      this.registry.remove(name);
      void this.#parts.forget(name, failed, false);
    }
    await gone;
  }

  #register(definition: ServerDefinition, replace: boolean): 'added' | 'unchanged' | 'replaced' {
    const { name, isLazy, keepAliveMs, card } = definition;
    return this.registry.register({ name, spec: definition, isLazy, keepAliveMs, card }, { replace });
  }

  /** Creates the server of a registered name. It starts only after its predecessor has ended. */
  #put(definition: ServerDefinition, predecessor?: Predecessor): ManagedServer {
    const { name } = definition;
    const { supervise, onCircuit, forget, restore: recall, clock } = this.#parts;
    const before = this.#byName.get(name);
    void forget(name, before, before?.origin === originOf(definition.spec));
    const { supervisor, auth } = supervise(definition, predecessor);
    const managed = new ManagedServer(
      definition,
      supervisor,
      this.registry.callHold(name),
      clock,
      auth,
      onCircuit(name),
      predecessor?.ended,
    );
    this.#byName.set(name, managed);
    this.#last = undefined;
    recall(managed, before);
    return managed;
  }

  observe({ server, ...event }: SupervisorEvent): void {
    if (event.kind !== 'state') return;
    if (event.to === 'ready' && event.from === 'connecting') {
      // The handshake of a new run proves that it works. A suspect that answered is still the old run.
      this.find(server)?.forgetCircuit();
      this.registry.opened(server);
    } else if (isUp(event.from) && !isUp(event.to)) {
      // Without a run, the supervisor decides about availability, not the breaker.
      this.find(server)?.forgetCircuit();
      this.registry.closed(server);
    }
  }

  /** From now on no server is found or started. Resolves when all servers have ended, including replaced ones. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#last = undefined;
    const ends = await Promise.allSettled([...this.#byName.values()].map(async (managed) => managed.dispose()));
    await this.#changes.over();
    // A failure is thrown only after all servers have ended.
    for (const end of ends) if (end.status === 'rejected') throw end.reason;
  }
}

/** A replaced server, for `#restore`. */
interface PreviousServer {
  readonly definition: ServerDefinition;
  readonly ledger: Ledger;
  readonly was: 'stopped' | 'running' | 'idle';
}

function previousOf(managed: ManagedServer): PreviousServer {
  const { definition, supervisor } = managed;
  const { state } = supervisor.snapshot();
  const isIdle = state === 'registered' || state === 'disabled';
  // A one-shot connection that was closed cannot be opened again.
  const isOver = isStopped(managed) || isOneShot(definition.spec);
  const was = isOver ? 'stopped' : isIdle ? 'idle' : 'running';
  return { definition, ledger: supervisor.ledger, was };
}

const isEager = ({ definition }: ManagedServer): boolean => !definition.isLazy && definition.isEnabled;

function begin(managed: ManagedServer): void {
  if (isEager(managed)) managed.supervisor.begin();
}

const isStopped = ({ supervisor }: ManagedServer): boolean => supervisor.refusal()?.code === 'server_stopped';

/** True if a caller stopped the server. The failure of a one-shot server also stops it, but then the refusal has a cause. */
function isStoppedOnPurpose({ supervisor }: ManagedServer): boolean {
  const refusal = supervisor.refusal();
  return refusal?.code === 'server_stopped' && refusal.cause === undefined;
}

/** A stopped lazy server waits for its next call; any other server starts. */
async function restartStopped({ definition, supervisor }: ManagedServer): Promise<void> {
  if (definition.isLazy) await supervisor.reload();
  else supervisor.start();
}

const isUp = (state: string): boolean => state === 'ready' || state === 'suspect';
