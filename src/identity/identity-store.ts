/**
 * identity.db: grants, registered clients and the proof of the sealing key; one file per user, shared by all processes.
 * Not here: the lifetime of a token (grant.ts), sealing (seal.ts), network file systems and the folder (open-store.ts).
 *
 * Invariants: each change is one durable transaction. A token is replaced only by that of the next generation (grant-row.ts). No
 * method deletes a grant except `removeGrant` and `saveLogin`. A row that does not open is reported as dead and stays as it is.
 */
import type Database from 'libsql';
import type { AuthSettings } from '../config/auth-settings.js';
import { HostError } from '../kernel/errors.js';
import { newId } from '../kernel/random.js';
import {
  type ClientAuthMethod,
  canonicalUrl,
  type GrantFacts,
  type GrantKey,
  type GrantRow,
  type GrantTokens,
  grantId,
  sameIssuer,
  storedFacts,
} from './grant-row.js';
import { parseJson } from './json.js';
import type { Sealer } from './seal.js';

const rowsMax = 1_000;
/** Matches the generation within one login: after a logout the next login begins with generation 1 again. */
const sameGeneration = 'id = ? AND gen = ? AND login = ?';
/** Time that a request may take, and after which a lease is taken even from a process that may live. */
const leaseMs = 30_000;
const leaseMsMax = 120_000;

export const identitySchema = `
  CREATE TABLE IF NOT EXISTS store (name TEXT PRIMARY KEY, value BLOB NOT NULL);
  CREATE TABLE IF NOT EXISTS clients (
    issuer TEXT NOT NULL, client_id TEXT NOT NULL, redirect TEXT NOT NULL, method TEXT NOT NULL, secret BLOB,
    secret_expires_ms INTEGER, is_gone INTEGER NOT NULL, created_ms INTEGER NOT NULL, PRIMARY KEY (issuer, client_id));
  CREATE TABLE IF NOT EXISTS grants (
    id TEXT PRIMARY KEY, resource TEXT NOT NULL, issuer TEXT NOT NULL, client_id TEXT NOT NULL, account TEXT NOT NULL,
    login TEXT NOT NULL, gen INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT, access BLOB NOT NULL, refresh BLOB,
    scopes TEXT NOT NULL, wanted TEXT NOT NULL, issued_ms INTEGER NOT NULL, expires_ms INTEGER, facts TEXT NOT NULL,
    lease_by TEXT, lease_ms INTEGER, interrupted INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0,
    retry_ms INTEGER NOT NULL DEFAULT 0, refused_ms INTEGER);
  CREATE TABLE IF NOT EXISTS served (
    url TEXT NOT NULL, account TEXT NOT NULL, grant_id TEXT NOT NULL, login_ms INTEGER NOT NULL,
    PRIMARY KEY (url, account, grant_id));`;

/** Members of `auth`. A grant matches if it agrees with each member that is given. */
export type GrantFilter = Partial<Pick<AuthSettings, 'grant' | 'account' | 'issuer' | 'clientId' | 'resource'>>;

export interface NewGrant extends GrantKey, GrantTokens {
  /** Configured URL that the grant is for. */
  readonly url: string;
  readonly facts: GrantFacts;
}

export interface ClientRow {
  readonly issuer: string;
  readonly clientId: string;
  readonly redirect: string;
  readonly method: ClientAuthMethod;
  readonly secret: string | undefined;
  readonly secretExpiresMs: number | undefined;
  readonly createdMs: number;
}

/** What a failed request changes. */
export interface FailureNote extends Pick<GrantRow, 'failures' | 'retryMs' | 'refusedMs' | 'isInterrupted'> {
  readonly lastError: NonNullable<GrantFacts['lastError']>;
  /** The failure ends the grant. */
  readonly isEnd?: boolean;
}

type Row = Readonly<Record<string, string | number | Buffer | null>>;

export class IdentityStore {
  readonly #database: Database.Database;
  readonly #sealer: Sealer;

  constructor(database: Database.Database, sealer: Sealer) {
    this.#database = database;
    this.#sealer = sealer;
  }

  /** Changes whenever another process has changed the file. */
  dataVersion(): number {
    const [row] = this.#all('PRAGMA data_version');
    return Number(row?.data_version);
  }

  /** A value of the table `store`. */
  value(name: string): string | undefined {
    const [row] = this.#all('SELECT value FROM store WHERE name = ?', name);
    return textOf(row?.value);
  }

  changeValue(name: string, change: (before: string | undefined) => string): void {
    this.#write(() => this.#run('INSERT OR REPLACE INTO store VALUES (?, ?)', name, change(this.value(name))));
  }

  /** The grant of the newest login for this URL. */
  findGrant(url: string, filter: GrantFilter): GrantRow | undefined {
    return this.servedGrants(url, filter)[0];
  }

  /** All grants for this URL, the newest login first. */
  servedGrants(url: string, { grant, account = '', issuer, clientId, resource }: GrantFilter): GrantRow[] {
    const rows = this.#all(
      `SELECT grants.* FROM served JOIN grants ON grants.id = served.grant_id
       WHERE served.url = ? AND served.account = ? ORDER BY served.login_ms DESC, grants.gen DESC`,
      ...[canonicalUrl(url), account],
    );
    const is = (wanted: string | undefined, own: string) => wanted === undefined || wanted === own;
    return rows
      .map((row) => this.#grantOf(row))
      .filter(
        (row) =>
          is(grant, row.facts.grantType) &&
          is(clientId, row.clientId) &&
          is(resource === false ? '' : resource, row.resource) &&
          (issuer === undefined || sameIssuer(issuer, row.issuer)),
      );
  }

  /** The URLs that a grant is for. */
  urlsOf(id: string): string[] {
    return this.#all('SELECT url FROM served WHERE grant_id = ? ORDER BY url', id).map(({ url }) => String(url));
  }

  readGrant(id: string): GrantRow | undefined {
    const [row] = this.#all('SELECT * FROM grants WHERE id = ?', id);
    return row && this.#grantOf(row);
  }

  grants(): GrantRow[] {
    return this.#all('SELECT * FROM grants ORDER BY issued_ms').map((row) => this.#grantOf(row));
  }

  /** Replaces the grant with the same key, and those of earlier registrations for the same resource and account. */
  saveLogin(grant: NewGrant): GrantRow {
    const { resource, issuer, clientId, account } = grant;
    const url = canonicalUrl(grant.url);
    const facts = resource === '' ? { ...grant.facts, url } : grant.facts;
    const id = grantId({ ...grant, facts });
    this.#write(() => {
      const [before] = this.#all('SELECT gen FROM grants WHERE id = ?', id);
      const [count] = this.#all('SELECT count(*) AS n FROM grants');
      if (!before && Number(count?.n) >= rowsMax) throw full();
      const gen = Number(before?.gen ?? 0) + 1;
      this.#run('DELETE FROM grants WHERE id = ?', id);
      this.#run(
        `INSERT INTO grants (id, resource, issuer, client_id, account, login, gen, state, access, refresh, scopes, wanted,
         issued_ms, expires_ms, facts) VALUES (?, ?, ?, ?, ?, ?, ?, 'live', ?, ?, ?, '[]', ?, ?, ?)`,
        ...[id, resource, issuer, clientId, account, newId(), gen, ...this.#sealed(id, gen, facts, grant)],
        ...[JSON.stringify(grant.scopes), grant.issuedMs, grant.expiresMs ?? null],
        JSON.stringify(facts),
      );
      if (facts.way === 'registered') {
        const replaced = `resource = ? AND issuer = ? AND account = ? AND id <> ? AND json_valid(facts)
          AND json_extract(facts, '$.way') = 'registered' AND json_extract(facts, '$.url') IS ?`;
        const key = [resource, issuer, account, id, facts.url ?? null];
        // Other servers may have logged in with the same registration; their tokens are for the same resource and account.
        this.#run(
          `UPDATE OR REPLACE served SET grant_id = ? WHERE grant_id IN (SELECT id FROM grants WHERE ${replaced})`,
          ...[id, ...key],
        );
        this.#run(`DELETE FROM grants WHERE ${replaced}`, ...key);
      }
      this.#run('INSERT OR REPLACE INTO served VALUES (?, ?, ?, ?)', url, account, id, facts.loginMs);
      this.#run('DELETE FROM served WHERE grant_id NOT IN (SELECT id FROM grants)');
    });
    return this.readGrant(id) as GrantRow;
  }

  /** Ends the grant here; returns false if it does not exist. */
  removeGrant(id: string): boolean {
    return this.#write(() => {
      this.#run('DELETE FROM served WHERE grant_id = ?', id);
      return this.#run('DELETE FROM grants WHERE id = ?', id) === 1;
    });
  }

  /**
   * Takes the lease of a generation and returns its row. Undefined: another process has the lease, or a newer token is stored. If another
   * process has left its lease behind, the row says that it is interrupted: the request of that process may have been sent.
   */
  takeLease(of: GrantRow, by: string, nowMs: number, isGone: (holder: string) => boolean): GrantRow | undefined {
    const { id, gen, login } = of;
    return this.#write(() => {
      const [row] = this.#all(`SELECT * FROM grants WHERE ${sameGeneration} AND state = 'live'`, id, gen, login);
      if (!row) return undefined;
      const holder = row.lease_by as string | null;
      const endsMs = Number(row.lease_ms);
      const isOver = nowMs >= endsMs + leaseMsMax - leaseMs;
      if (holder !== null && holder !== by && !isOver && !isGone(holder)) {
        // The wall clock was set back since: the lease lasts as long as one that begins now.
        if (endsMs > nowMs + leaseMs) this.#run('UPDATE grants SET lease_ms = ? WHERE id = ?', nowMs + leaseMs, id);
        return undefined;
      }
      const interrupted = holder === null ? Number(row.interrupted) : 1;
      this.#run(
        'UPDATE grants SET lease_by = ?, lease_ms = ?, interrupted = ? WHERE id = ?',
        ...[by, nowMs + leaseMs, interrupted, id],
      );
      return this.#grantOf({ ...row, interrupted });
    });
  }

  /**
   * Stores the token of the next generation. False: a login or another process has stored another token meanwhile. A grant that was
   * marked as dead lives again: tokens prove that the refusal was that of a spent refresh token.
   */
  advance(
    { id, gen, login }: GrantRow,
    tokens: GrantTokens,
    facts: GrantFacts,
    { failures, retryMs }: Pick<GrantRow, 'failures' | 'retryMs'> = { failures: 0, retryMs: 0 },
  ): boolean {
    return this.#write(
      () =>
        this.#run(
          `UPDATE grants SET gen = ?, access = ?, refresh = ?, scopes = ?, issued_ms = ?, expires_ms = ?, facts = ?,
           lease_by = NULL, lease_ms = NULL, interrupted = 0, failures = ?, retry_ms = ?, refused_ms = NULL,
           state = 'live', reason = NULL WHERE ${sameGeneration}`,
          ...[gen + 1, ...this.#sealed(id, gen + 1, facts, tokens), JSON.stringify(tokens.scopes), tokens.issuedMs],
          ...[tokens.expiresMs ?? null, JSON.stringify(facts), failures, retryMs, id, gen, login],
        ) === 1,
    );
  }

  /** Frees the lease after a request without tokens. False: another token was stored meanwhile, or another process has the lease. */
  noteFailure({ id, gen, login, facts }: GrantRow, by: string, note: FailureNote): boolean {
    const { lastError, isEnd = false } = note;
    return this.#write(
      () =>
        this.#run(
          `UPDATE grants SET lease_by = NULL, lease_ms = NULL, interrupted = ?, failures = ?, retry_ms = ?, refused_ms = ?,
           facts = ?, state = ?, reason = ? WHERE ${sameGeneration} AND lease_by = ?`,
          ...[Number(note.isInterrupted), note.failures, note.retryMs, note.refusedMs ?? null],
          ...[JSON.stringify({ ...facts, lastError }), ...(isEnd ? ['dead', lastError.reason] : ['live', null])],
          ...[id, gen, login, by],
        ) === 1,
    );
  }

  /** Marks the grant as dead and keeps its tokens. */
  markDead(row: GrantRow, by: string, reason: string, atMs: number): boolean {
    return this.noteFailure(row, by, { ...row, lastError: { reason, atMs }, isEnd: true });
  }

  /** Other processes may add scopes at the same time. Nothing is added to a login that is newer than the row. */
  addWanted({ id, login }: GrantRow, added: readonly string[]): void {
    this.#write(() => {
      const [row] = this.#all('SELECT wanted FROM grants WHERE id = ? AND login = ?', id, login);
      if (!row) return;
      const wanted = [...new Set([...(listOf(row.wanted) ?? []), ...added])];
      this.#run('UPDATE grants SET wanted = ? WHERE id = ?', JSON.stringify(wanted), id);
    });
  }

  /** The newest usable registration at this issuer whose redirect URI is accepted. */
  findClient(issuer: string, nowMs: number, accepts: (redirect: string) => boolean): ClientRow | undefined {
    return this.#all('SELECT * FROM clients WHERE issuer = ? AND is_gone = 0 ORDER BY created_ms DESC', issuer)
      .map((row) => this.#clientOf(row))
      .find(
        (client) =>
          client !== undefined && accepts(client.redirect) && (client.secretExpiresMs ?? Number.MAX_VALUE) > nowMs,
      );
  }

  readClient(issuer: string, clientId: string): ClientRow | undefined {
    const [row] = this.#all('SELECT * FROM clients WHERE issuer = ? AND client_id = ?', issuer, clientId);
    return row && this.#clientOf(row);
  }

  saveClient(client: ClientRow): void {
    const { issuer, clientId, redirect, method, secret, secretExpiresMs, createdMs } = client;
    const sealed = secret === undefined ? null : this.#sealer.seal(secret, secretPlace(issuer, clientId));
    this.#write(() => {
      this.#run(
        'INSERT OR REPLACE INTO clients VALUES (?, ?, ?, ?, ?, ?, 0, ?)',
        ...[issuer, clientId, redirect, method, sealed, secretExpiresMs ?? null, createdMs],
      );
      this.#run(
        `DELETE FROM clients WHERE (issuer, client_id) IN (SELECT issuer, client_id FROM clients
         WHERE (issuer, client_id) NOT IN (SELECT issuer, client_id FROM grants)
         ORDER BY is_gone DESC, created_ms LIMIT max(0, (SELECT count(*) FROM clients) - ${rowsMax}))`,
      );
    });
  }

  /** The authorization server has forgotten this client: the next login registers another. */
  clientGone(issuer: string, clientId: string): void {
    this.#write(() => this.#run('UPDATE clients SET is_gone = 1 WHERE issuer = ? AND client_id = ?', issuer, clientId));
  }

  #sealed(id: string, gen: number, facts: GrantFacts, tokens: GrantTokens): [Buffer, Buffer | null] {
    const seal = (text: string, column: TokenColumn) => this.#sealer.seal(text, tokenPlace(id, column, gen, facts));
    const { accessToken, refreshToken } = tokens;
    return [seal(accessToken, 'access'), refreshToken === undefined ? null : seal(refreshToken, 'refresh')];
  }

  #grantOf(row: Row): GrantRow {
    const text = (column: string) => String(row[column]);
    const gen = Number(row.gen);
    const { facts, isWhole } = storedFacts(parseJson(String(row.facts)));
    const [scopes, wanted] = [listOf(row.scopes), listOf(row.wanted)];
    const key: GrantKey = {
      ...{ resource: text('resource'), issuer: text('issuer'), clientId: text('client_id'), account: text('account') },
    };
    // The id is computed: tokens of a row whose issuer, client or resource was edited do not open.
    const open = (column: TokenColumn) =>
      this.#open(row[column], tokenPlace(grantId({ ...key, facts }), column, gen, facts));
    const [accessToken, refreshToken] = [open('access'), open('refresh')];
    const isOpen = accessToken !== undefined && (row.refresh === null || refreshToken !== undefined);
    const isReadable = isOpen && isWhole && scopes !== undefined && wanted !== undefined;
    return {
      ...{ id: text('id'), gen, ...key, login: text('login'), facts },
      state: isReadable && row.state === 'live' ? 'live' : 'dead',
      reason: isReadable ? textOf(row.reason) : 'unreadable',
      ...{ accessToken: accessToken ?? '', refreshToken, scopes: scopes ?? [], wanted: wanted ?? [] },
      ...{ issuedMs: Number(row.issued_ms), expiresMs: numberOf(row.expires_ms), isInterrupted: row.interrupted === 1 },
      ...{ failures: Number(row.failures), retryMs: Number(row.retry_ms), refusedMs: numberOf(row.refused_ms) },
    };
  }

  #clientOf(row: Row): ClientRow | undefined {
    const [issuer, clientId] = [String(row.issuer), String(row.client_id)];
    const secret = this.#open(row.secret, secretPlace(issuer, clientId));
    if (row.secret !== null && secret === undefined) return undefined;
    const [redirect, method] = [String(row.redirect), row.method as ClientAuthMethod];
    const secretExpiresMs = numberOf(row.secret_expires_ms);
    return { issuer, clientId, redirect, method, secret, secretExpiresMs, createdMs: Number(row.created_ms) };
  }

  #open(sealed: Row[string] | undefined, place: readonly (string | number)[]): string | undefined {
    const isBlob = typeof sealed === 'object' && sealed !== null;
    return isBlob ? this.#sealer.open(Buffer.from(sealed), place) : undefined;
  }

  #all(sql: string, ...values: unknown[]): Row[] {
    return this.#database.prepare(sql).all(...values) as Row[];
  }

  #run(sql: string, ...values: unknown[]): number {
    return this.#database.prepare(sql).run(...values).changes;
  }

  /** IMMEDIATE: two processes that read before they write would otherwise deadlock. */
  #write<T>(change: () => T): T {
    this.#database.exec('BEGIN IMMEDIATE');
    try {
      const result = change();
      this.#database.exec('COMMIT');
      return result;
    } catch (error) {
      // A full disk has ended the transaction; a second error would hide the first.
      if (this.#database.inTransaction) this.#database.exec('ROLLBACK');
      throw error;
    }
  }
}

type TokenColumn = 'access' | 'refresh';

/** The place includes the endpoints: an edited file must not send a token elsewhere. */
const tokenPlace = (id: string, column: TokenColumn, gen: number, facts: GrantFacts) => {
  const { tokenEndpoint, revocationEndpoint = '' } = facts;
  return ['grants', id, column, gen, tokenEndpoint, revocationEndpoint];
};
const secretPlace = (issuer: string, clientId: string) => ['clients', issuer, clientId, 'secret'] as const;

/** Undefined: the column is damaged. */
function listOf(value: Row[string] | undefined): string[] | undefined {
  const list = parseJson(String(value));
  return Array.isArray(list) ? list : undefined;
}

const textOf = (value: Row[string] | undefined): string | undefined => (typeof value === 'string' ? value : undefined);
const numberOf = (value: Row[string] | undefined): number | undefined =>
  typeof value === 'number' ? value : undefined;

const full = (): HostError =>
  new HostError('insufficient_storage', `identity.db has ${rowsMax} grants`, {
    limit: rowsMax,
    reason: 'store_full',
    hint: 'remove grants that are no longer used: hostler auth lists them with their URL, hostler logout URL removes one',
  });
