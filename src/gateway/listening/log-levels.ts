/**
 * The log level of each client. Legacy clients set it for their session, modern clients with each request.
 * A shared server gets the most verbose level of all sessions. Each client then receives only messages of its own level.
 * Not here: attributing log messages to calls (the host).
 */

import { setBounded } from '../../kernel/bounded-map.js';
import type { Principal } from '../../policy/operation.js';
import { eraNamed } from '../../session/eras/eras.js';
import { memberString } from '../../wire/json-members.js';
import type { Upstreams } from '../upstreams.js';
import { offers } from '../views/view.js';

/** The levels of RFC 5424, lowest first. */
export const logLevels = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'] as const;
export type LogLevel = (typeof logLevels)[number];

export const isLogLevel = (text: string | undefined): text is LogLevel =>
  (logLevels as readonly (string | undefined)[]).includes(text);

/** Undefined `level`: the client gets all logs. A log without a valid level is dropped for any other client. */
export function isLogged(level: LogLevel | undefined, params: Buffer | undefined): boolean {
  if (level === undefined) return true;
  const own = params && memberString(params, 'level');
  return isLogLevel(own) && !isMoreVerbose(own, level);
}

const isMoreVerbose = (level: LogLevel, than: LogLevel): boolean => logLevels.indexOf(level) < logLevels.indexOf(than);

export const LOG_LEVEL = 'io.modelcontextprotocol/logLevel';

/** Far above the limit of sessions, so no open session loses its level. */
const requestedMax = 10_000;

interface Requested {
  readonly level: LogLevel;
  readonly principal: Principal;
  readonly servers: ReadonlySet<string>;
}

export class LogLevels {
  readonly #upstreams: Upstreams;
  /** Requested levels by session. */
  readonly #requested = new Map<string, Requested>();
  /** The level that Hostler sent to each server, and the session with the server in which it was sent. */
  readonly #sent = new Map<string, { readonly level: LogLevel; readonly session: number }>();
  /** Cached set of each array of server names: sessions with the same view pass the same array. */
  readonly #sets = new WeakMap<readonly string[], ReadonlySet<string>>();

  constructor(upstreams: Upstreams) {
    this.#upstreams = upstreams;
  }

  of(session: string): LogLevel | undefined {
    return this.#requested.get(session)?.level;
  }

  set(session: string, level: LogLevel, principal: Principal, servers: readonly string[]): void {
    setBounded(this.#requested, session, { level, principal, servers: this.#asSet(servers) }, requestedMax);
    for (const server of servers) this.#send(server);
  }

  forget(session: string): void {
    this.#requested.delete(session);
  }

  /** A new session with a server starts at the server's default level, so the level is sent again. */
  changed(server: string): void {
    const isReady = this.#upstreams.known(server)?.isReady ?? false;
    if (!isReady) this.#sent.delete(server);
    else if (this.#requested.size > 0) this.#send(server);
  }

  #send(server: string): void {
    const known = this.#upstreams.known(server);
    if (!known?.isReady || !known.facts || !offers(known, 'logging')) return;
    if (eraNamed(known.facts.era).logLevelSource !== 'session') return;
    // Here each client has its own instance, which stays at its default level.
    if (known.definition.isolation === 'per-client') return;
    const most = this.#mostVerbose(server);
    const before = this.#sent.get(server);
    if (!most || (before?.level === most.level && before.session === known.session)) return;
    const sent = { level: most.level, session: known.session };
    this.#sent.set(server, sent);
    const params = `{"level":"${most.level}"}`;
    // A failed request is sent again later. Clients see no difference: the gateway filters their messages.
    this.#upstreams.request(server, 'logging/setLevel', params, { principal: most.principal }).catch(() => {
      if (this.#sent.get(server) === sent) this.#sent.delete(server);
    });
  }

  #asSet(servers: readonly string[]): ReadonlySet<string> {
    const set = this.#sets.get(servers) ?? new Set(servers);
    this.#sets.set(servers, set);
    return set;
  }

  #mostVerbose(server: string): Requested | undefined {
    let most: Requested | undefined;
    for (const requested of this.#requested.values()) {
      if (!requested.servers.has(server)) continue;
      if (!most || isMoreVerbose(requested.level, most.level)) most = requested;
    }
    return most;
  }
}
