/**
 * The servers a host knows, by name, and who holds each of them open.
 * Not here: their connections (supervisor/); what a definition may hold (config/). Losing a connection takes no lease away,
 * and giving a lease back closes nothing: it only starts the idle time, at the end of which `onIdle` is told.
 *
 * Invariants: a change of a registration happens as a whole or not at all; an eager server holds a binding of its own, so
 * that it is never idle; the idle time of a server runs only while nobody holds it.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Cancel, Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { Lease, type LeaseKind } from './lease.js';

export interface Registration<Spec> {
  readonly name: string;
  readonly spec: Spec;
  /** Started when it is first needed. */
  readonly isLazy: boolean;
  /** How long nobody must need it before it is stopped; 0 = it is never stopped. */
  readonly keepAliveMs: number;
  readonly card: string | undefined;
}

export interface RegistryRow {
  readonly name: string;
  readonly lazy: boolean;
  readonly active: boolean;
  /** Leases of all kinds, the own one of an eager server too. */
  readonly ref_count: number;
  readonly card: string | undefined;
}

export interface RegistryOptions {
  readonly clock: Clock;
  readonly onIdle: (name: string) => void;
  readonly serversMax?: number;
}

/** How calls hold a server open: counted, without an object for each. Every `enter` is followed by one `leave`. */
export interface CallHold {
  enter(): void;
  leave(): void;
}

interface Entry<Spec> {
  registration: Registration<Spec>;
  isActive: boolean;
  readonly held: Record<LeaseKind, number>;
  /** What an eager server holds itself open with. */
  own: Lease | undefined;
  /** Since when nobody holds it. */
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
  /** One function for all servers: thousands may be at rest. */
  readonly #rest = (entry: Entry<Spec>): void => this.#restTimer(entry);

  constructor(options: RegistryOptions) {
    this.#options = options;
    this.#serversMax = options.serversMax ?? 10_000;
  }

  // --- registrations

  has(name: string): boolean {
    return this.#entries.has(name);
  }

  get(name: string): Registration<Spec> {
    return this.#entry(name).registration;
  }

  /** In the order of their names. */
  list(): Registration<Spec>[] {
    return this.#sorted().map(({ registration }) => registration);
  }

  /**
   * The same definition again changes nothing; another one under the same name needs `replace`. Leases stay: who holds the
   * server holds its successor.
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

  /** Leases on it hold nothing any more. */
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

  // --- who needs it

  lease(name: string, kind: LeaseKind = 'binding'): Lease {
    return this.#lease(this.#entry(name), kind);
  }

  callHold(name: string): CallHold {
    return new EntryHold(this.#entry(name), this.#rest);
  }

  held(name: string): Readonly<Record<LeaseKind, number>> {
    return { ...this.#entry(name).held };
  }

  // --- what the host reports

  /** It runs now. One that came up with nobody holding it, by a probe say, has its idle time from here. */
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
      ref_count: countOf(entry),
      card: entry.registration.card,
    }));
  }

  // --- inside

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

  /** An eager server holds itself; one that has become lazy lets go. A new idle time counts from now. */
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

  /** The idle time begins now, unless somebody holds it. */
  #restTimer(entry: Entry<Spec>): void {
    if (countOf(entry) > 0) return;
    const { clock } = this.#options;
    entry.idleSinceMs = clock.nowMs();
    // One that runs already looks again when it is over: calls come and go too fast to set a timer for each.
    if (!entry.cancelIdle) this.#setTimer(entry);
  }

  #setTimer(entry: Entry<Spec>): void {
    const { name, keepAliveMs } = entry.registration;
    // A lease may be given back after its server was removed, and another be registered under the name.
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

/** A name may be anything a caller wrote. */
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
    hint: 'choose another name, or ask for it to be replaced',
  });

const tooMany = (name: string, limit: number): HostError =>
  new HostError('invalid_spec', `server '${shown(name)}' is one too many: ${limit} are registered`, {
    server: name,
    field: 'name',
    limit,
    execution: 'not_executed',
    hint: 'remove servers that are no longer used',
  });
