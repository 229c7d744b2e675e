import fs, { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type Database from 'libsql';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';
import { loadedLibsql } from '../catalog/store/libsql.js';
import { seededRandom } from '../kernel/random.js';
import { grantId, shownFacts } from './grant-row.js';
import { IdentityStore, type NewGrant } from './identity-store.js';
import { isHolderGone, newHolder } from './lease-holder.js';
import { openStore } from './open-store.js';
import { createSealer, readKeyFile } from './seal.js';

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

function newFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'hostler-identity-'));
  folders.push(folder);
  return folder;
}

const open = (folder: string, key?: string, problems: unknown[] = []): IdentityStore =>
  openStore({ folder, key, onProblem: (error) => problems.push(error) });

const grant = (change: Partial<NewGrant> = {}): NewGrant => ({
  url: 'https://mcp.example/a',
  resource: 'https://mcp.example/a',
  issuer: 'https://as.example',
  clientId: 'client-1',
  account: '',
  accessToken: 'planted-access-token-1',
  refreshToken: 'planted-refresh-token-1',
  scopes: ['read'],
  issuedMs: 1_000,
  expiresMs: 3_601_000,
  facts: {
    grantType: 'code',
    tokenEndpoint: 'https://as.example/token',
    authMethod: 'none',
    way: 'registered',
    loginMs: 1,
    asked: [],
  },
  ...change,
});

/** Another connection to the same file, as another program would have. */
const raw = (folder: string): Database.Database => new (loadedLibsql())(path.join(folder, 'identity.db'));

/** Copy of the store under another path, so that it is opened again. */
function copyOf(folder: string, change: (database: Database.Database) => void): string {
  const to = newFolder();
  raw(folder).pragma('wal_checkpoint(TRUNCATE)');
  for (const name of ['identity.db', 'identity.key'])
    writeFileSync(path.join(to, name), readFileSync(path.join(folder, name)), { mode: 0o600 });
  change(raw(to));
  return to;
}

describe('grants', () => {
  test('are found by URL and account, the newest login first, and never for another URL', () => {
    const store = open(newFolder());
    store.saveLogin(grant());
    store.saveLogin(grant({ account: 'work', accessToken: 'token-of-work' }));
    const find = (url: string, account = '') => store.findGrant(url, { account })?.accessToken;
    expect(find('https://mcp.example/a')).toBe('planted-access-token-1');
    expect(find('HTTPS://MCP.example:443/a#x')).toBe('planted-access-token-1');
    expect(find('https://mcp.example/a', 'work')).toBe('token-of-work');
    for (const other of [
      'https://mcp.example/',
      'https://mcp.example/a/b',
      'http://mcp.example/a',
      'https://mcp.example.org/a',
    ])
      expect(find(other)).toBeUndefined();
  });

  test('another issuer, client or resource is another grant; the old one stays', () => {
    const store = open(newFolder());
    const facts = { ...grant().facts, way: 'configured' as const };
    for (const [at, change] of [
      {},
      { issuer: 'https://other' },
      { clientId: 'c2' },
      { resource: 'https://r' },
    ].entries())
      store.saveLogin(grant({ ...change, facts: { ...facts, loginMs: at } }));
    expect(store.grants()).toHaveLength(4);
    const find = (filter: object) => store.findGrant(grant().url, { account: '', ...filter });
    expect(find({})).toMatchObject({ resource: 'https://r' });
    expect(find({ issuer: 'https://other' })).toMatchObject({ issuer: 'https://other', clientId: 'client-1' });
    // An issuer is written with and without a trailing slash, by operators and by metadata.
    expect(find({ issuer: 'https://other/' })).toMatchObject({ issuer: 'https://other' });
    expect(find({ clientId: 'unknown' })).toBeUndefined();
  });

  test('a token of client_credentials is another grant than the login of a person with the same client', () => {
    const store = open(newFolder());
    const facts = { ...grant().facts, way: 'configured' as const };
    const own = { ...facts, grantType: 'client_credentials' as const, loginMs: 2 };
    const login = store.saveLogin(grant({ facts }));
    const job = store.saveLogin(grant({ accessToken: 'token-of-the-job', refreshToken: undefined, facts: own }));
    expect(store.readGrant(login.id)).toEqual(login);
    const find = (of: 'code' | 'client_credentials') => store.findGrant(grant().url, { grant: of })?.id;
    expect([find('code'), find('client_credentials')]).toEqual([login.id, job.id]);
    expect(store.servedGrants(grant().url, {})).toHaveLength(2);
  });

  test('a server that spells its resource in many ways causes one grant of client_credentials', () => {
    const store = open(newFolder());
    const facts = { ...grant().facts, way: 'configured' as const, grantType: 'client_credentials' as const };
    for (const resource of ['https://mcp.example/a', 'https://MCP.example/a', 'HTTPS://mcp.Example:443/a'])
      store.saveLogin(grant({ resource, accessToken: `for ${resource}`, facts }));
    expect(store.grants()).toMatchObject([{ gen: 3, state: 'live', resource: 'HTTPS://mcp.Example:443/a' }]);
  });

  test('a login of a newly registered client replaces the grant of the old registration', () => {
    const store = open(newFolder());
    store.saveLogin(grant());
    store.saveLogin(grant({ clientId: 'client-2' }));
    expect(store.grants().map(({ clientId }) => clientId)).toEqual(['client-2']);
  });

  test('AC-A25 a login of a newly registered client keeps the logins of other servers that share the resource', () => {
    const store = open(newFolder());
    const b = 'https://mcp.example/a/b';
    const login = (url: string, clientId: string, loginMs: number) =>
      store.saveLogin(grant({ url, clientId, accessToken: `${clientId}-token`, facts: { ...grant().facts, loginMs } }));
    login(grant().url, 'client-1', 1);
    login(b, 'client-1', 2);
    const { id } = login(b, 'client-2', 3);
    const find = (url: string) => store.findGrant(url, { account: '' })?.accessToken;
    expect([find(grant().url), find(b), store.grants().length]).toEqual(['client-2-token', 'client-2-token', 1]);
    expect(store.urlsOf(id)).toEqual([grant().url, b]);
    // A server uses its newest login: the time of the login decides, not that of the write.
    const configured = { ...grant().facts, way: 'configured' as const, loginMs: 2 };
    store.saveLogin(grant({ url: b, clientId: 'own', accessToken: 'own-token', facts: configured }));
    expect(find(b)).toBe('client-2-token');
  });

  test('AC-A25 without the parameter resource, each URL has a grant of its own for each kind of client', () => {
    const store = open(newFolder());
    const [one, other] = ['https://one.example/mcp', 'https://other.example/mcp'];
    const find = (url: string) => store.findGrant(url, { resource: false })?.accessToken;
    for (const facts of [
      grant().facts,
      { ...grant().facts, way: 'configured' as const },
      { ...grant().facts, way: 'configured' as const, grantType: 'client_credentials' as const },
    ]) {
      const account = `${facts.way}-${facts.grantType}`;
      const login = (url: string, clientId: string) =>
        store.saveLogin(grant({ url, resource: '', clientId, account, accessToken: `${clientId} for ${url}`, facts }));
      const tokenOf = (url: string) => store.findGrant(url, { account, resource: false })?.accessToken;
      login(one, 'c1');
      login(other, 'c1');
      expect([tokenOf(one), tokenOf(other)]).toEqual([`c1 for ${one}`, `c1 for ${other}`]);
      login(other, 'c1');
      expect(store.grants().filter((row) => row.account === account)).toHaveLength(2);
    }
    store.saveLogin(grant({ url: one, resource: '', clientId: 'c1' }));
    store.saveLogin(grant({ url: other, resource: '', clientId: 'c2', accessToken: 'of another registration' }));
    expect([find(one), find(other)]).toEqual(['planted-access-token-1', 'of another registration']);
    store.saveLogin(grant({ url: one, resource: '', clientId: 'c2', accessToken: 'newer' }));
    expect(store.grants().filter((row) => row.account === '')).toHaveLength(2);
    expect([find(one), find(other)]).toEqual(['newer', 'of another registration']);
  });

  test('a grant without a resource still opens if it was stored before the URL became part of its id', () => {
    const folder = newFolder();
    const { id, gen, facts } = open(folder).saveLogin(grant({ resource: '' }));
    const { url: _url, ...before } = facts;
    const old = grantId({ ...grant({ resource: '' }), facts: before });
    expect(old).not.toBe(id);
    const sealer = createSealer(readKeyFile(path.join(folder, 'identity.key')) as Buffer);
    const seal = (text: string, column: string) =>
      sealer.seal(text, ['grants', old, column, gen, before.tokenEndpoint, '']);
    const to = copyOf(folder, (database) => {
      database
        .prepare('UPDATE grants SET id = ?, facts = ?, access = ?, refresh = ?')
        .run(old, JSON.stringify(before), seal('old token', 'access'), seal('old refresh', 'refresh'));
      database.prepare('UPDATE served SET grant_id = ?').run(old);
    });
    expect(open(to).findGrant(grant().url, {})).toMatchObject({ id: old, state: 'live', accessToken: 'old token' });
  });

  test('a token is replaced once, by the answer that comes first', () => {
    const store = open(newFolder());
    const first = store.saveLogin(grant());
    expect(store.advance(first, { ...first, accessToken: 'two' }, first.facts)).toBe(true);
    expect(store.advance(first, { ...first, accessToken: 'three' }, first.facts)).toBe(false);
    expect(store.markDead(first, 'me', 'grant_revoked', 1)).toBe(false);
    expect(store.readGrant(first.id)).toMatchObject({ gen: 2, accessToken: 'two', state: 'live' });
  });

  test('a dead grant keeps its tokens, and the next login revives it', () => {
    const store = open(newFolder());
    const first = store.saveLogin(grant());
    store.takeLease(first, 'me', 0, () => false);
    expect(store.markDead(first, 'me', 'grant_revoked', 7)).toBe(true);
    const dead = store.readGrant(first.id);
    expect(dead).toMatchObject({ state: 'dead', reason: 'grant_revoked', refreshToken: 'planted-refresh-token-1' });
    expect(store.takeLease(first, 'me', 0, () => true)).toBeUndefined();
    const again = store.saveLogin(grant({ accessToken: 'new' }));
    expect(again).toMatchObject({ state: 'live', gen: 2, accessToken: 'new' });
    expect(again.login).not.toBe(first.login);
    expect([store.removeGrant(first.id), store.removeGrant(first.id)]).toEqual([true, false]);
    expect(store.findGrant(grant().url, { account: '' })).toBeUndefined();
  });
});

test('a late answer for a login that a logout has ended does not touch the next login, even with an equal generation', () => {
  const store = open(newFolder());
  const old = store.saveLogin(grant());
  store.removeGrant(old.id);
  const now = store.saveLogin(grant({ accessToken: 'token-of-the-next-account' }));
  expect([now.id, now.gen]).toEqual([old.id, old.gen]);
  expect(store.advance(old, { ...old, accessToken: 'token-of-the-old-account' }, old.facts)).toBe(false);
  expect(store.markDead(old, 'me', 'grant_revoked', 1)).toBe(false);
  expect(store.takeLease(old, 'me', 0, () => true)).toBeUndefined();
  expect(store.readGrant(now.id)).toMatchObject({ state: 'live', gen: 1, accessToken: 'token-of-the-next-account' });
});

describe('the lease of a generation', () => {
  test.each([
    ['is free can be taken', undefined, 0, false, true],
    ['is ours can be taken', 'me', 0, false, true],
    ['is of a process that lives cannot be taken', 'other', 0, false, false],
    ['is of a process that is gone can be taken', 'other', 0, true, true],
    ['is of a process that may live cannot be taken 1 ms before 120 s', 'other', 119_999, false, false],
    ['is 120 s old can be taken', 'other', 120_000, false, true],
  ])('that %s', (_what, holder, atMs, isGone, isTaken) => {
    const store = open(newFolder());
    const row = store.saveLogin(grant());
    if (holder !== undefined) expect(store.takeLease(row, holder, 0, () => false)).toBeDefined();
    const leased = store.takeLease(row, 'me', atMs, () => isGone);
    expect(leased !== undefined).toBe(isTaken);
    const isInterrupted = holder !== undefined && isTaken;
    if (leased) expect(leased).toEqual(store.readGrant(row.id));
    expect(store.readGrant(row.id)?.isInterrupted).toBe(isInterrupted);
  });

  test('that was taken before the clock was set back lasts 120 s from the next attempt, not until the old time comes', () => {
    const store = open(newFolder());
    const row = store.saveLogin(grant());
    const yearMs = 365 * 86_400_000;
    store.takeLease(row, 'other', yearMs, () => false);
    const attempts = [0, 60_000, 119_999, 120_000].map((atMs) => store.takeLease(row, 'me', atMs, () => false));
    expect(attempts.map((leased) => leased?.isInterrupted)).toEqual([undefined, undefined, undefined, true]);
  });

  test('ends with the answer, and a failure is recorded by its holder only', () => {
    const store = open(newFolder());
    const row = store.saveLogin(grant());
    const note = {
      failures: 1,
      retryMs: 9,
      refusedMs: undefined,
      isInterrupted: true,
      lastError: { reason: 'x', atMs: 1 },
    };
    store.takeLease(row, 'me', 0, () => false);
    store.noteFailure(row, 'other', note);
    expect(store.takeLease(row, 'other', 0, () => false)).toBeUndefined();
    store.noteFailure(row, 'me', note);
    expect(store.readGrant(row.id)).toMatchObject({ failures: 1, retryMs: 9, isInterrupted: true });
    expect(store.takeLease(row, 'other', 0, () => false)).toBeDefined();
  });
});

test('only the holder of the lease can mark the grant as dead, and tokens that arrive later revive the grant', () => {
  const store = open(newFolder());
  const row = store.saveLogin(grant());
  store.takeLease(row, 'slow', 0, () => false);
  store.takeLease(row, 'other', 120_000, () => false);
  expect(store.markDead(row, 'slow', 'grant_revoked', 1)).toBe(false);
  expect(store.readGrant(row.id)?.state).toBe('live');
  expect(store.markDead(row, 'other', 'refresh_interrupted', 1)).toBe(true);
  // The slow process was the first to send the refresh token, and its answer was good.
  expect(store.advance(row, { ...row, accessToken: 'two' }, row.facts)).toBe(true);
  expect(store.readGrant(row.id)).toMatchObject({ state: 'live', reason: undefined, accessToken: 'two', gen: 2 });
});

test('AC-A17 if two processes need different scopes at the same time, both are kept, unless a login came first', () => {
  const folder = newFolder();
  const store = open(folder);
  const row = store.saveLogin(grant());
  const key = readKeyFile(path.join(folder, 'identity.key')) ?? Buffer.alloc(32);
  const other = new IdentityStore(raw(folder), createSealer(key));
  // Both have read the row before either of them writes.
  const seen = other.readGrant(row.id);
  expect(seen).toEqual(row);
  store.addWanted(row, ['read', 'one']);
  other.addWanted(seen ?? row, ['read', 'two']);
  expect(store.readGrant(row.id)?.wanted).toEqual(['read', 'one', 'two']);
  store.saveLogin(grant({ scopes: ['read', 'one', 'two'] }));
  other.addWanted(row, ['read', 'three']);
  expect(store.readGrant(row.id)?.wanted).toEqual([]);
});

test('two holders of one process do not share a lease, and neither counts as gone', () => {
  const store = open(newFolder());
  const row = store.saveLogin(grant());
  const [one, other] = [newHolder(), newHolder()];
  expect(store.takeLease(row, one, 0, isHolderGone)).toBeDefined();
  expect(store.takeLease(row, other, 0, isHolderGone)).toBeUndefined();
});

test.each([
  ['this process', {}, false],
  ['a process whose start could not be read', { ownerStartTicks: 0 }, false],
  ['a process of another container', { pidSpace: 'pid:[1]' }, false],
  ['a boot that is not known', { bootId: '' }, false],
  ['a process that started at another time', { ownerStartTicks: 1 }, true],
  ['a process that has ended', { ownerPid: 2 ** 22 + 1 }, true],
  ['another boot', { bootId: 'before' }, true],
  ['a text of another program', { bootId: undefined }, false],
])('the holder of a lease is %s (%j): isHolderGone is %s', (_who, change, isGone) => {
  const holder = JSON.parse(newHolder()) as object;
  expect(isHolderGone(JSON.stringify({ ...holder, ...change }))).toBe(isGone);
});

describe('registered clients', () => {
  const client = {
    issuer: 'https://as',
    clientId: 'c',
    redirect: 'http://127.0.0.1:5/callback',
    method: 'none' as const,
  };
  test('the newest that is neither gone nor expired is found', () => {
    const store = open(newFolder());
    const save = (clientId: string, createdMs: number, secretExpiresMs?: number) =>
      store.saveClient({ ...client, clientId, createdMs, secretExpiresMs, secret: `secret-of-${clientId}` });
    save('old', 1);
    save('expired', 2, 50);
    save('gone', 3);
    store.clientGone('https://as', 'gone');
    expect(store.findClient('https://as', 100, () => true)).toMatchObject({ clientId: 'old', secret: 'secret-of-old' });
    expect(store.findClient('https://as', 100, () => false)).toBeUndefined();
    expect(store.findClient('https://as2', 100, () => true)).toBeUndefined();
    expect(store.readClient('https://as', 'gone')).toMatchObject({ secret: 'secret-of-gone' });
  });
});

describe('AC-A24 what is on disk', () => {
  test('AC-A24 no token is in the files in any encoding, and files and folder are private', () => {
    const folder = newFolder();
    chmodSync(folder, 0o755);
    const store = open(folder);
    const planted = Array.from({ length: 20 }, (_, at) => `planted-secret-${at}-${'x'.repeat(20)}`);
    for (const [at, secret] of planted.entries()) {
      store.saveLogin(grant({ account: String(at), accessToken: secret, refreshToken: `${secret}-refresh` }));
      store.saveClient({
        issuer: 'i',
        clientId: String(at),
        redirect: 'r',
        method: 'none',
        secret,
        secretExpiresMs: 1,
        createdMs: 1,
      });
    }
    const files = readdirSync(folder);
    expect(files.sort()).toEqual(['identity.db', 'identity.db-shm', 'identity.db-wal', 'identity.key']);
    const all = Buffer.concat(files.map((name) => readFileSync(path.join(folder, name)))).toString('latin1');
    for (const secret of planted)
      for (const encoding of ['latin1', 'base64', 'hex', 'base64url'] as const)
        expect(all.includes(Buffer.from(secret).toString(encoding).replace(/=+$/, '').slice(0, -1))).toBe(false);
    expect(all).toContain('https://as.example');
    for (const name of files) expect(statSync(path.join(folder, name)).mode & 0o077).toBe(0);
    expect(statSync(folder).mode & 0o777).toBe(0o700);
  });

  test('AC-A24 a value moved to another row, column or generation, or changed in one bit, does not open', () => {
    const folder = newFolder();
    const store = open(folder);
    const [one, two] = [store.saveLogin(grant()), store.saveLogin(grant({ account: 'b' }))];
    const changes = {
      'row to row': `UPDATE grants SET access = (SELECT access FROM grants WHERE id = '${two.id}') WHERE id = '${one.id}'`,
      'column to column': `UPDATE grants SET access = refresh WHERE id = '${one.id}'`,
      'refresh from access': `UPDATE grants SET refresh = access WHERE id = '${one.id}'`,
      'generation edited': `UPDATE grants SET gen = 2 WHERE id = '${one.id}'`,
      'token endpoint edited': `UPDATE grants SET facts = json_set(facts, '$.tokenEndpoint', 'https://evil.example') WHERE id = '${one.id}'`,
      'revocation endpoint edited': `UPDATE grants SET facts = json_set(facts, '$.revocationEndpoint', 'https://evil.example') WHERE id = '${one.id}'`,
      'issuer edited': `UPDATE grants SET issuer = 'https://evil.example' WHERE id = '${one.id}'`,
      'resource edited': `UPDATE grants SET resource = 'https://evil.example' WHERE id = '${one.id}'`,
    };
    for (const [what, sql] of Object.entries(changes)) {
      const changed = open(copyOf(folder, (database) => database.exec(sql)));
      expect([what, changed.readGrant(one.id)]).toMatchObject([what, { state: 'dead', reason: 'unreadable' }]);
      expect(changed.readGrant(two.id)?.state).toBe('live');
    }
    for (const clientId of ['c1', 'c2'])
      store.saveClient({
        ...{ issuer: 'https://as.example', clientId, redirect: 'r', method: 'client_secret_basic' },
        ...{ secret: `secret-of-${clientId}`, secretExpiresMs: undefined, createdMs: 1 },
      });
    const moved = {
      'client to client': `UPDATE clients SET secret = (SELECT secret FROM clients WHERE client_id = 'c2') WHERE client_id = 'c1'`,
      'token to client': `UPDATE clients SET secret = (SELECT access FROM grants WHERE id = '${one.id}') WHERE client_id = 'c1'`,
      'issuer of a client edited': `UPDATE clients SET issuer = 'https://evil.example' WHERE client_id = 'c1'`,
    };
    for (const [what, sql] of Object.entries(moved)) {
      const changed = open(copyOf(folder, (database) => database.exec(sql)));
      for (const issuer of ['https://as.example', 'https://evil.example'])
        expect([what, changed.readClient(issuer, 'c1')]).toEqual([what, undefined]);
      expect(changed.readClient('https://as.example', 'c2')?.secret).toBe('secret-of-c2');
    }
    const random = seededRandom(24);
    const copy = open(copyOf(folder, () => {}));
    expect(copy.readGrant(one.id)).toMatchObject({ state: 'live', accessToken: 'planted-access-token-1' });
    const database = raw(folder);
    const { access } = database.prepare('SELECT access FROM grants WHERE id = ?').get(one.id) as { access: Buffer };
    const key = readKeyFile(path.join(folder, 'identity.key'));
    const sealer = createSealer(key ?? Buffer.alloc(32));
    const place = ['grants', one.id, 'access', one.gen, one.facts.tokenEndpoint, ''];
    expect(sealer.open(Buffer.from(access), place)).toBe('planted-access-token-1');
    const flip = () => {
      const flipped = Buffer.from(access);
      const bit = Math.floor(random() * flipped.length * 8);
      flipped[bit >> 3] = (flipped[bit >> 3] as number) ^ (1 << (bit & 7));
      return flipped;
    };
    for (let flips = 0; flips < 4_096; flips++) expect(sealer.open(flip(), place)).toBeUndefined();
    database.prepare('UPDATE grants SET access = ? WHERE id = ?').run(flip(), one.id);
    expect(store.readGrant(one.id)?.reason).toBe('unreadable');
  });

  test.each([
    ['facts', '{'],
    ['facts', '7'],
    ['facts', '[]'],
    ['scopes', '["a'],
    ['scopes', '{"a":1}'],
    ['wanted', ''],
  ])('AC-A24 a row whose %s are damaged (%s) is dead, and every other row is used', (column, text) => {
    const folder = newFolder();
    const store = open(folder);
    const [one, two] = [store.saveLogin(grant()), store.saveLogin(grant({ account: 'b' }))];
    const to = copyOf(folder, (database) =>
      database.prepare(`UPDATE grants SET ${column} = ? WHERE id = ?`).run(text, one.id),
    );
    const changed = open(to);
    expect(changed.grants().map(({ state, reason }) => [state, reason])).toEqual([
      ['dead', 'unreadable'],
      ['live', undefined],
    ]);
    expect(changed.findGrant(grant().url, {})?.id).toBe(one.id);
    expect(changed.saveLogin(grant({ accessToken: 'new' }))).toMatchObject({ id: one.id, state: 'live' });
    expect(changed.readGrant(two.id)).toEqual(two);
  });

  test.each([
    { asked: {} },
    { asked: [{ scopet: ['read'], atMs: 1 }] },
    { asked: [null] },
    { lastError: { reason: 'x', atLs: 1 } },
    { lastError: { reason: 'x', atMs: 1e300 } },
  ])('AC-A24 a row whose facts are JSON with a damaged member is dead, and can be shown and replaced: %j', (damage) => {
    const folder = newFolder();
    const [one] = [open(folder).saveLogin(grant())];
    const text = JSON.stringify({ ...grant().facts, ...damage });
    const store = open(copyOf(folder, (database) => database.prepare('UPDATE grants SET facts = ?').run(text)));
    const row = store.findGrant(grant().url, {});
    expect(row).toMatchObject({ id: one.id, state: 'dead', reason: 'unreadable', facts: { asked: [] } });
    expect(row && shownFacts(row)).toMatchObject({ issuer: 'https://as.example', lastError: undefined });
    expect(store.saveLogin(grant({ accessToken: 'new' }))).toMatchObject({ id: one.id, state: 'live' });
  });

  test.each([
    ['a passphrase', 'a long passphrase of an operator', 'another long passphrase here'],
    ['32 bytes in base64', Buffer.alloc(32, 7).toString('base64'), Buffer.alloc(32, 8).toString('base64')],
  ])('AC-A24 a wrong key (%s) is store_locked and changes nothing; the right key opens', (_what, right, wrong) => {
    const folder = newFolder();
    const store = open(folder, right);
    const row = store.saveLogin(grant());
    raw(folder).pragma('wal_checkpoint(TRUNCATE)');
    const to = newFolder();
    const file = path.join(to, 'identity.db');
    writeFileSync(file, readFileSync(path.join(folder, 'identity.db')), { mode: 0o600 });
    const before = readFileSync(file);
    for (const key of [wrong, undefined])
      expect(() => open(to, key)).toThrow(
        expect.objectContaining({ details: expect.objectContaining({ reason: 'store_locked' }) }),
      );
    expect(readFileSync(file).equals(before)).toBe(true);
    expect(readdirSync(to).includes('identity.key')).toBe(false);
    expect(open(to, right).readGrant(row.id)?.accessToken).toBe('planted-access-token-1');
  });

  test('AC-A24 a short passphrase, and a key file that others may read or that is no key, are refused', () => {
    expect(() => open(newFolder(), 'too short')).toThrow(/shorter than 16/);
    for (const [text, mode] of [
      ['x', 0o600],
      [Buffer.alloc(32).toString('base64'), 0o644],
    ] as const) {
      const folder = newFolder();
      writeFileSync(path.join(folder, 'identity.key'), text, { mode });
      expect(() => open(folder)).toThrow(
        expect.objectContaining({ details: expect.objectContaining({ reason: 'store_locked' }) }),
      );
    }
  });

  test('AC-A24 a store of a newer Hostler is store_locked and stays where it is', () => {
    const folder = newFolder();
    open(folder).saveLogin(grant());
    const to = copyOf(folder, (database) => {
      database.pragma('user_version = 2');
      database.close();
    });
    const file = path.join(to, 'identity.db');
    const before = readFileSync(file);
    const problems: unknown[] = [];
    expect(() => open(to, undefined, problems)).toThrow(
      expect.objectContaining({
        message: expect.stringContaining('newer Hostler'),
        details: expect.objectContaining({ reason: 'store_locked' }),
      }),
    );
    expect([readFileSync(file).equals(before), problems]).toEqual([true, []]);
    expect(readdirSync(to).filter((name) => name.includes('unusable'))).toEqual([]);
  });

  test('AC-A24 a damaged file is set aside and reported, and a new one begins', () => {
    const folder = newFolder();
    writeFileSync(
      path.join(folder, 'identity.db'),
      'this is not a database, and it is long enough to have a header'.repeat(4),
    );
    const problems: unknown[] = [];
    const store = open(folder, undefined, problems);
    expect(problems).toMatchObject([{ details: { reason: 'unusable_store' } }]);
    expect(readdirSync(folder)).toContain('identity.db.unusable');
    expect(store.saveLogin(grant()).gen).toBe(1);
  });
});

test('a change by another process is visible in the data version', () => {
  const folder = newFolder();
  const store = open(folder);
  const before = store.dataVersion();
  store.saveLogin(grant());
  expect(store.dataVersion()).toBe(before);
  raw(folder).exec("UPDATE grants SET wanted = '[1]'");
  expect(store.dataVersion()).not.toBe(before);
});

test.each([
  ['ext4', 'used', 0xef53],
  ['tmpfs', 'used', 0x1021994],
  ['overlayfs', 'used', 0x794c7630],
  ['Windows', 'used', 0],
  ['NFS', 'refused', 0x6969],
  ['SMB', 'refused', 0x517b],
  ['CIFS', 'refused', 0xff534d42],
  ['SMB2', 'refused', 0xfe534d42],
  ['CephFS', 'refused', 0xc36400],
  ['Lustre', 'refused', 0xbd00bd0],
  ['GPFS', 'refused', 0x47504653],
  ['AFS', 'refused', 0x5346414f],
  ['9p', 'reported', 0x1021997],
  ['FUSE', 'reported', 0x65735546],
])('AC-A24 a store on %s is %s', (_name, outcome, type) => {
  const { statfsSync } = fs;
  const replace = (given: unknown) => {
    Object.assign(fs, { statfsSync: given });
    syncBuiltinESMExports();
  };
  onTestFinished(() => replace(statfsSync));
  const folder = newFolder();
  replace(() => ({ type }));
  const problems: unknown[] = [];
  if (outcome === 'refused') {
    expect(() => open(folder, undefined, problems)).toThrow('is on a network file system');
    expect(readdirSync(folder)).toEqual([]);
  } else {
    // The second use opens nothing, and reports nothing.
    for (const _use of [1, 2]) expect(open(folder, undefined, problems).grants()).toEqual([]);
  }
  expect(problems).toMatchObject(outcome === 'reported' ? [{ details: { reason: 'shared_store' } }] : []);
});
