/**
 * The registered servers by name, and the leases that keep each of them running. Releasing the last lease starts the keep-alive
 * time; `onIdle` is called at its end. A lost connection releases no lease.
 * Not here: connections (supervisor.ts), definitions (config/).
 *
 * Invariants: a registration changes as a whole or not at all. An eager server has a lease on itself, so it is never idle.
 * The keep-alive time runs only while the server has no lease.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Cancel, Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';

type LeaseKind = 'binding' | 'call';

/** Keeps one server running until the lease is released. A second release has no effect. */
export class Lease implements Disposable, AsyncDisposable {
  readonly server: string;
  readonly kind: LeaseKind;
  #onRelease: (() => void) | undefined;

  constructor(server: string, kind: LeaseKind, onRelease: () => void) {
    this.server = server;
    this.kind = kind;
    this.#onRelease = onRelease;
  }

  get isReleased(): boolean {
    return this.#onRelease === undefined;
  }

  release(): void {
    const onRelease = this.#onRelease;
    this.#onRelease = undefined;
    onRelease?.();
  }

  [Symbol.dispose](): void {
    this.release();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.release();
  }
}

export interface Registration<Spec> {
  readonly name: string;
  readonly spec: Spec;
  /** True: the first call starts the server. */
  readonly isLazy: boolean;
  /** Time that a server without leases keeps running; 0: for ever. */
  readonly keepAliveMs: number;
  readonly card: string | undefined;
}

interface RegistryRow {
  readonly name: string;
  readonly lazy: boolean;
  readonly active: boolean;
  /** Leases of all kinds, including the lease of an eager server on itself. */
  readonly refCount: number;
  readonly card: string | undefined;
}

interface RegistryOptions {
  readonly clock: Clock;
  readonly onIdle: (name: string) => void;
  readonly serversMax?: number;
}

/** Leases of calls, as a counter instead of an object per call. Every `enter` is followed by one `leave`. */
export interface CallHold {
  enter(): void;
  leave(): void;
}

interface Entry<Spec> {
  registration: Registration<Spec>;
  isActive: boolean;
  readonly held: Record<LeaseKind, number>;
  own: Lease | undefined;
  idleSinceMs: number;
  cancelIdle: Cancel | undefined;
}

class EntryHold<Spec> implements CallHold {
  readonly #entry: Entry<Spec>;
  readonly #rest: (entry: Entry<Spec>) => void;

  constructor(entry: Entry<Spec>, rest: (entry: Entry<Spec>) => void) {
    this.#entry = entry;
    this.#rest = rest;
  }

  enter(): void {
    this.#entry.held.call++;
  }

  leave(): void {
    this.#entry.held.call--;
    this.#rest(this.#entry);
  }
}

export class Registry<Spec> {
  readonly #options: RegistryOptions;
  readonly #serversMax: number;
  readonly #entries = new Map<string, Entry<Spec>>();
  /** One function for all servers, because thousands may be idle. */
  readonly #rest = (entry: Entry<Spec>): void => this.#restTimer(entry);

  constructor(options: RegistryOptions) {
    this.#options = options;
    this.#serversMax = options.serversMax ?? 10_000;
  }

  has(name: string): boolean {
    return this.#entries.has(name);
  }

  get(name: string): Registration<Spec> {
    return this.#entry(name).registration;
  }

  list(): Registration<Spec>[] {
    return this.#sorted().map(({ registration }) => registration);
  }

  /**
   * The same definition again changes nothing; another definition under the same name needs `replace`. Leases remain and count
   * for the new server.
   */
  register(registration: Registration<Spec>, { replace = false } = {}): 'added' | 'unchanged' | 'replaced' {
    const { name } = registration;
    const entry = this.#entries.get(name);
    if (!entry) {
      if (this.#entries.size >= this.#serversMax) throw tooMany(name, this.#serversMax);
      const held = { binding: 0, call: 0 };
      const added: Entry<Spec> = {
        registration,
        isActive: false,
        held,
        own: undefined,
        idleSinceMs: 0,
        cancelIdle: undefined,
      };
      this.#entries.set(name, added);
      this.#hold(added);
      return 'added';
    }
    if (isDeepStrictEqual(entry.registration, registration)) return 'unchanged';
    if (!replace) throw taken(name);
    entry.registration = registration;
    this.#hold(entry);
    return 'replaced';
  }

  /** The leases of a removed server have no effect. */
  remove(name: string): boolean {
    const entry = this.#entries.get(name);
    if (!entry) return false;
    this.#entries.delete(name);
    entry.cancelIdle?.();
    entry.cancelIdle = undefined;
    return true;
  }

  clear(): void {
    for (const name of [...this.#entries.keys()]) this.remove(name);
  }

  lease(name: string, kind: LeaseKind = 'binding'): Lease {
    return this.#lease(this.#entry(name), kind);
  }

  callHold(name: string): CallHold {
    return new EntryHold(this.#entry(name), this.#rest);
  }

  held(name: string): Readonly<Record<LeaseKind, number>> {
    return { ...this.#entry(name).held };
  }

  // --- reports of the host

  /** The server runs. Without a lease, such as after a probe, its keep-alive time starts now. */
  opened(name: string): void {
    this.#setActive(name, true);
  }

  closed(name: string): void {
    this.#setActive(name, false);
  }

  snapshot(): RegistryRow[] {
    return this.#sorted().map((entry) => ({
      name: entry.registration.name,
      lazy: entry.registration.isLazy,
      active: entry.isActive,
      refCount: countOf(entry),
      card: entry.registration.card,
    }));
  }

  #setActive(name: string, isActive: boolean): void {
    const entry = this.#entries.get(name);
    if (!entry || entry.isActive === isActive) return;
    entry.isActive = isActive;
    if (isActive) this.#restTimer(entry);
    else this.#endIdle(entry);
  }

  #lease(entry: Entry<Spec>, kind: LeaseKind): Lease {
    entry.held[kind]++;
    return new Lease(entry.registration.name, kind, () => {
      entry.held[kind]--;
      this.#restTimer(entry);
    });
  }

  /** Takes or releases the lease of an eager server on itself. A changed keep-alive time starts now. */
  #hold(entry: Entry<Spec>): void {
    const { isLazy } = entry.registration;
    if (!isLazy) entry.own ??= this.#lease(entry, 'binding');
    else if (entry.own) {
      entry.own.release();
      entry.own = undefined;
    } else if (entry.cancelIdle) {
      this.#endIdle(entry);
      this.#restTimer(entry);
    }
  }

  /** Starts the keep-alive time, unless there is a lease. */
  #restTimer(entry: Entry<Spec>): void {
    if (countOf(entry) > 0) return;
    const { clock } = this.#options;
    entry.idleSinceMs = clock.nowMs();
    // A running timer checks again when it fires: one timer per call would cost too much.
    if (!entry.cancelIdle) this.#setTimer(entry);
  }

  #setTimer(entry: Entry<Spec>): void {
    const { name, keepAliveMs } = entry.registration;
    // A lease may be released after its server was removed and another one registered under the name.
    if (this.#entries.get(name) !== entry || !entry.isActive || keepAliveMs === 0) return;
    const { clock, onIdle } = this.#options;
    entry.cancelIdle = clock.at(entry.idleSinceMs + keepAliveMs, () => {
      entry.cancelIdle = undefined;
      if (countOf(entry) > 0) return;
      if (clock.nowMs() < entry.idleSinceMs + keepAliveMs) this.#setTimer(entry);
      else onIdle(name);
    });
  }

  #endIdle(entry: Entry<Spec>): void {
    entry.cancelIdle?.();
    entry.cancelIdle = undefined;
  }

  #entry(name: string): Entry<Spec> {
    const entry = this.#entries.get(name);
    if (!entry) throw notFound(name);
    return entry;
  }

  #sorted(): Entry<Spec>[] {
    return [...this.#entries.values()].sort((a, b) => (a.registration.name < b.registration.name ? -1 : 1));
  }
}

const countOf = ({ held }: Entry<unknown>): number => held.binding + held.call;

/** The name may be any text from a caller. */
const shown = (name: string): string => neutraliseLine(name, LIMITS.quotedChars);

export const notFound = (name: string): HostError =>
  new HostError('server_not_found', `no server named '${shown(name)}'`, {
    server: name,
    execution: 'not_executed',
    hint: 'check the name against "mcpServers" in the configuration, or spawn the server first',
  });

const taken = (name: string): HostError =>
  new HostError('invalid_spec', `server '${shown(name)}' exists already, with another definition`, {
    server: name,
    field: 'name',
    execution: 'not_executed',
    hint: 'choose another name, or pass { replace: true }',
  });

const tooMany = (name: string, limit: number): HostError =>
  new HostError('invalid_spec', `server '${shown(name)}' cannot be registered: the limit is ${limit} servers`, {
    server: name,
    field: 'name',
    limit,
    execution: 'not_executed',
    hint: 'remove servers that are no longer used',
  });
