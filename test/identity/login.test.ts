/** Logins against the hostile authorization server: all eras, all ways of registration, and everything that can go wrong. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { seededRandom } from '../../src/kernel/random.js';
import { eventually } from '../eventually.js';
import { authorize, logIn } from '../fixtures/identity/browser.js';
import { authEras, type Hostile, startHostile } from '../fixtures/identity/hostile.js';
import { faults } from '../fixtures/identity/site.js';
import { countFor, timeLimitMs } from '../tier.js';
import { startLoginWorld } from './login-world.js';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

describe('a login', () => {
  test.each(authEras)('in the era %s ends with tokens for this server', async (era) => {
    const { as, rs, rig, url } = await startLoginWorld({ era });
    const { row, isOldest } = await rig.login({ url });
    expect(as.grants.active(row.accessToken)).toBeDefined();
    expect(row).toMatchObject({ state: 'live', issuer: as.issuer, resource: rs.url, gen: 1 });
    expect(isOldest).toBe(era === '2025-03-26');
    expect(as.tokenRequests('authorization_code')).toHaveLength(1);
    expect(as.registrations).toBe(1);
    // A second login, also after the first one has ended, and one with a new client.
    rig.store.takeLease(row, 'me', Date.now(), () => false);
    expect(rig.store.markDead(row, 'me', 'grant_revoked', Date.now())).toBe(true);
    for (const isFresh of [false, true]) expect(await rig.reason({ url, isFresh })).toBeUndefined();
    expect(as.registrations).toBe(2);
    expect(row.refreshToken).toBeDefined();
    // A strict server refuses other headers before it looks for a token.
    for (const { headers } of rs.site.at('mcp')) expect(headers.accept).toBe('application/json, text/event-stream');
  });

  test.each([
    ['', ['as-inserted']],
    ['/tenant', ['as-inserted']],
    ['/tenant', ['oidc-inserted']],
    ['/tenant', ['oidc-appended']],
    ['', ['oidc-inserted']],
  ] as const)('issuer path "%s", metadata at %s', async (issuerPath, metadataAt) => {
    const { as, rig, url } = await startLoginWorld({ issuerPath });
    as.metadataAt = [...metadataAt];
    expect((await rig.login({ url })).row.issuer).toBe(as.issuer);
  });

  test('on a machine without a browser the pasted address is used, and three wrong addresses end the login', async () => {
    const { as, rig, url } = await startLoginWorld();
    const paste = async ({ url: shown, paste }: { url: URL; paste(text: string): void }) => {
      const { location } = await authorize(shown.href);
      paste('nonsense');
      paste(`${location?.origin}/callback?code=x&state=y`);
      paste(String(location));
    };
    expect((await rig.login({ url, person: paste })).row.state).toBe('live');
    expect(rig.pastesRefused).toBe(2);
    const before = as.tokenRequests().length;
    const wrong = ({ paste: text }: { paste(text: string): void }) => {
      for (let pastes = 0; pastes < 3; pastes++) text('http://127.0.0.1:1/callback?code=c&state=s');
    };
    expect(await rig.reason({ url, person: wrong })).toBe('wrong_redirect');
    expect(as.tokenRequests()).toHaveLength(before);
  });

  test('the account is named by the ID token, and another account needs a confirmation', async () => {
    const { as, rig, url } = await startLoginWorld();
    as.idToken = { preferred_username: 'ada' };
    expect((await rig.login({ url })).row.facts.identity).toBe('ada');
    as.idToken = { preferred_username: 'bob' };
    expect(await rig.reason({ url })).toBe('account_changed');
    expect(rig.asked).toEqual([expect.stringContaining('bob')]);
    expect(rig.store.findGrant(url, { account: '' })?.facts.identity).toBe('ada');
    expect((await rig.login({ url, confirms: true })).row.facts.identity).toBe('bob');
    as.idToken = { aud: 'another-client', preferred_username: 'eve' };
    expect((await rig.login({ url })).row.facts.identity).toBeUndefined();
  });

  test('tokens of another account that is not wanted are revoked', async () => {
    const { as, rig, url } = await startLoginWorld();
    as.idToken = { preferred_username: 'ada' };
    await rig.login({ url });
    as.idToken = { preferred_username: 'bob' };
    expect(await rig.reason({ url })).toBe('account_changed');
    const [refresh, access] = as.site.at('revoke').map(({ form }) => form);
    expect([refresh?.get('token_type_hint'), access?.get('token_type_hint')]).toEqual([
      'refresh_token',
      'access_token',
    ]);
    const row = rig.store.findGrant(url, { account: '' });
    expect([row?.facts.identity, as.grants.active(row?.accessToken ?? '') !== undefined]).toEqual(['ada', true]);
    expect([...as.grants.tokens.keys()].filter((token) => as.grants.active(token))).toEqual([row?.accessToken]);
  });

  test('if another process writes to the store for a second, no tokens are lost', async () => {
    const { as, rig, url } = await startLoginWorld();
    let release = () => {};
    as.editTokens = (answer) => {
      rig.elsewhere((database) => database.exec('SELECT 1'));
      release = rig.lock();
      setTimeout(release, 1_000);
      return answer;
    };
    expect((await rig.login({ url })).row.state).toBe('live');
    release();
  });

  test('tokens that cannot be stored are revoked', async () => {
    const { as, rig, url } = await startLoginWorld();
    as.editTokens = (answer) => {
      rig.elsewhere((database) => database.exec('DROP TABLE grants'));
      return answer;
    };
    await expect(rig.login({ url })).rejects.toThrow();
    expect(as.site.count('revoke')).toBe(2);
  });

  test('a refresh token beside an unusable access token is revoked, because nothing is stored', async () => {
    const { as, rig, url } = await startLoginWorld();
    as.editTokens = (answer) => ({ ...answer, token_type: 'mac' });
    await expect(rig.login({ url })).rejects.toMatchObject({ details: { reason: 'token_invalid' } });
    expect([as.site.count('revoke'), rig.store.grants()]).toEqual([1, []]);
  });

  test('two accounts of one service can be in use at the same time', async () => {
    const { rig, url } = await startLoginWorld();
    const [one, two] = [await rig.login({ url }), await rig.login({ url, auth: { account: 'work' } })];
    expect(one.row.id).not.toBe(two.row.id);
    expect(rig.store.findGrant(url, { account: '' })?.accessToken).toBe(one.row.accessToken);
    expect(rig.store.findGrant(url, { account: 'work' })?.accessToken).toBe(two.row.accessToken);
  });

  test('scopes: the configured ones, else those of the challenge, else those of the resource; offline_access if the server lists it', async () => {
    const { as, rs, rig, url } = await startLoginWorld();
    const asked = async (auth = {}) => {
      await rig.login({ url, auth });
      return rig.shown.at(-1)?.url.searchParams.get('scope');
    };
    expect(await asked()).toBeNull();
    rs.prmScopes = ['p1', 'p2'];
    expect(await asked()).toBe('p1 p2');
    rs.challengeScope = 'c1';
    expect(await asked()).toBe('c1');
    expect(await asked({ scopes: ['own'] })).toBe('own');
    as.scopesSupported = ['c1', 'offline_access'];
    expect(await asked()).toBe('c1 offline_access');
    expect(await asked({ scopesMax: ['c1'] })).toBe('c1');
    expect(await asked({ scopesMax: ['c1', 'offline_access'] })).toBe('c1 offline_access');
    expect(await rig.reason({ url, auth: { scopesMax: ['other'] } })).toBe('scope_ceiling');
  });

  test('scopes that calls asked for: `--scopes` replaces them, and auth.scopesMax limits them', async () => {
    const { as, rig, url } = await startLoginWorld();
    const { row } = await rig.login({ url, auth: { scopes: ['own'] } });
    const asked = async (change: object) => {
      rig.store.addWanted(rig.store.readGrant(row.id) ?? row, ['own', 'unknown-here']);
      const reason = await rig.reason({ url, ...change });
      return reason ?? rig.shown.at(-1)?.url.searchParams.get('scope');
    };
    expect(await asked({ auth: { scopes: ['own'] } })).toBe('own unknown-here');
    as.editRedirect = (back) => {
      if (rig.shown.at(-1)?.url.searchParams.get('scope')?.includes('unknown')) back.set('error', 'invalid_scope');
    };
    expect(await asked({ auth: { scopes: ['own'] } })).toBe('login_failed');
    expect(await asked({ scopes: ['own', 'more'] })).toBe('own more');
    expect(rig.store.readGrant(row.id)?.wanted).toEqual([]);
    expect(await asked({ auth: { scopes: ['own'], scopesMax: ['own', 'else'] } })).toBe('own');
  });

  test('authorizeParams and tokenParams are sent; resource can be left out', async () => {
    const { as, rig, url } = await startLoginWorld();
    as.resources = undefined;
    await rig.login({
      url,
      auth: { authorizeParams: { audience: 'api' }, tokenParams: { extra: 'x' }, resource: false },
    });
    const { searchParams } = rig.shown[0]?.url ?? new URL('http://x');
    expect([searchParams.get('audience'), searchParams.has('resource')]).toEqual(['api', false]);
    expect(as.tokenRequests()[0]?.form.get('extra')).toBe('x');
    expect(as.tokenRequests()[0]?.form.has('resource')).toBe(false);
  });
});

describe('AC-A5 which client Hostler is', () => {
  const documentUrl = 'https://client.example/hostler.json';
  const cases = [false, true].flatMap((hasId) =>
    [false, true].flatMap((hasUrl) =>
      [false, true].flatMap((saysCimd) =>
        [false, true].map((registers) => [hasId, hasUrl, saysCimd, registers] as const),
      ),
    ),
  );
  test.each(cases)('AC-A5 id %s, document %s, AS takes documents %s, AS registers %s', async (...facts) => {
    const [hasId, hasUrl, saysCimd, registers] = facts;
    const { as, rig, url } = await startLoginWorld();
    as.cimd = saysCimd;
    as.registration = registers ? 'open' : 'none';
    if (hasId) as.addClient({ client_id: 'made-by-hand' });
    const auth = {
      ...(hasId ? { clientId: 'made-by-hand' } : {}),
      ...(hasUrl ? { clientMetadataUrl: documentUrl } : {}),
    };
    const way = hasId
      ? 'configured'
      : hasUrl && saysCimd
        ? 'metadata_document'
        : registers
          ? 'registered'
          : 'client_needed';
    if (way === 'client_needed') {
      const error = await rig.login({ url, auth }).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({
        details: { reason: way },
        hint: expect.stringMatching(/redirect URI http:\/\/127\.0\.0\.1:\d+\/callback/),
      });
      expect([rig.shown, as.registrations]).toEqual([[], 0]);
      return;
    }
    const { row } = await rig.login({ url, auth });
    expect(row.facts.way).toBe(way);
    expect(as.registrations).toBe(way === 'registered' ? 1 : 0);
    const sent = rig.shown[0]?.url.searchParams;
    if (way === 'metadata_document') expect(sent?.get('client_id')).toBe(documentUrl);
    if (way === 'registered')
      expect(as.grants.clients.get(row.clientId)?.registration).toMatchObject({
        application_type: 'native',
        grant_types: ['authorization_code', 'refresh_token'],
        redirect_uris: [sent?.get('redirect_uri')],
      });
  });

  test.each(['client_secret_basic', 'client_secret_post', 'none'])('AC-A5 a server that takes %s', async (method) => {
    const { as, rig, url } = await startLoginWorld();
    as.authMethods = [method];
    expect((await rig.login({ url })).row.facts.authMethod).toBe(method);
    expect((await rig.login({ url })).row.gen).toBe(2);
    expect(as.registrations).toBe(1);
  });

  test('AC-A5 a refused registration shows the redacted answer', async () => {
    const { as, rig, url } = await startLoginWorld();
    as.site.fail('register', faults.oauthError('invalid_client_metadata', 403, 'client_secret=abcdefgh was wrong'));
    const error = await rig.login({ url }).catch((thrown: Error) => thrown);
    expect(error).toMatchObject({ details: { reason: 'registration_refused', httpStatus: 403 } });
    expect(String(error)).not.toContain('abcdefgh');
  });
});

describe('a login page that refuses a metadata document', () => {
  const auth = { clientMetadataUrl: 'https://client.example/hostler.json' };
  test.each(['invalid_client', 'invalid_request'])('%s: --fresh registers a client, which is kept', async (word) => {
    const { as, rig, url } = await startLoginWorld();
    as.editRedirect = (back) => {
      if (rig.shown.at(-1)?.url.searchParams.get('client_id') === auth.clientMetadataUrl) back.set('error', word);
    };
    const error = await rig.login({ url, auth }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ details: { reason: 'login_failed' }, hint: expect.stringContaining('--fresh') });
    expect((await rig.login({ url, auth, isFresh: true })).row.facts.way).toBe('registered');
    // The next login must not go back to the document.
    expect((await rig.login({ url, auth })).row.facts.way).toBe('registered');
    expect(as.registrations).toBe(1);
  });

  test('without registration --fresh uses the document again', async () => {
    const { as, rig, url } = await startLoginWorld();
    as.registration = 'none';
    expect((await rig.login({ url, auth, isFresh: true })).row.facts.way).toBe('metadata_document');
  });
});

describe('AC-A6 a client that the authorization server has forgotten', () => {
  test('AC-A6 the next login registers once and succeeds', async () => {
    const { as, rig, url } = await startLoginWorld();
    const { row } = await rig.login({ url });
    as.forgetClients();
    // The page of the authorization server says "unknown client", of which Hostler learns nothing.
    const silent = rig.login({ url, timeoutMs: 400, person: ({ url: shown }) => authorize(shown.href) });
    await expect(silent).rejects.toMatchObject({
      details: { reason: 'login_expired' },
      hint: expect.stringContaining('--fresh'),
    });
    rig.store.clientGone(row.issuer, row.clientId);
    const again = await rig.login({ url });
    expect([as.registrations, again.row.clientId === row.clientId]).toEqual([2, false]);
    expect((await rig.login({ url, isFresh: true })).row.state).toBe('live');
    expect(as.registrations).toBe(3);
  });

  test('AC-A6 a client refused at the token endpoint is marked as gone, and one login registers at most twice', async () => {
    const { as, rig, url } = await startLoginWorld();
    as.site.fail('token', faults.oauthError('invalid_client', 401), 1);
    expect(await rig.reason({ url })).toBe('client_gone');
    expect((await rig.login({ url })).row.state).toBe('live');
    expect(as.registrations).toBe(2);
    as.site.fail('register', faults.oauthError('invalid_redirect_uri', 400));
    expect(await rig.reason({ url, isFresh: true })).toBe('registration_refused');
    expect(as.registrations).toBe(4);
    expect(
      as.site
        .at('register')
        .slice(-2)
        .map(({ body }) => new URL(JSON.parse(body).redirect_uris[0]).hostname),
    ).toEqual(['127.0.0.1', 'localhost']);
  });
});

describe('AC-A7 the port of the callback', () => {
  test('AC-A7 if a fixed port is in use, an error names the port, and nothing is opened or registered', async () => {
    const { as, rig, url } = await startLoginWorld();
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
    ends.push(() => taken.close());
    const { port } = taken.address() as AddressInfo;
    for (const change of [{ port }, { auth: { redirect: { port } } }]) {
      const error = await rig.login({ url, ...change }).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({
        message: expect.stringContaining(String(port)),
        details: { reason: 'callback_port' },
      });
    }
    expect([rig.shown, as.registrations]).toEqual([[], 0]);
  });

  test('AC-A7 the port of a registration is used again; if the port is in use, Hostler registers again', async () => {
    const { as, rig, url } = await startLoginWorld();
    await rig.login({ url });
    await rig.login({ url });
    expect([as.registrations, rig.shown[1]?.redirectUri]).toEqual([1, rig.shown[0]?.redirectUri]);
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(rig.shown[0]?.port, '127.0.0.1', resolve));
    ends.push(() => taken.close());
    await rig.login({ url });
    expect(as.registrations).toBe(2);
    expect(rig.shown[2]?.redirectUri).not.toBe(rig.shown[0]?.redirectUri);
  });

  test('AC-A7 two logins at once have two ports and both succeed; each binds before it registers', async () => {
    const { as, rig, url } = await startLoginWorld();
    const isBound: boolean[] = [];
    const bound = async (
      run: () => { status: number; body?: string },
      response: import('node:http').ServerResponse,
      body: string,
    ) => {
      const redirect = new URL(JSON.parse(body).redirect_uris[0]);
      isBound.push(
        await fetch(`${redirect.origin}/`).then(
          (answer) => answer.status === 404,
          () => false,
        ),
      );
      const answer = run();
      response.writeHead(answer.status, { 'content-type': 'application/json' }).end(answer.body);
    };
    as.site.fail('register', (run, response, seen) => void bound(run, response, seen.body));
    const both = await Promise.all([rig.login({ url }), rig.login({ url, auth: { account: 'b' } })]);
    expect(both.map(({ row }) => row.state)).toEqual(['live', 'live']);
    expect(new Set(rig.shown.map(({ port }) => port)).size).toBe(2);
    const more = countFor(3, 998);
    for (let logins = 0; logins < more; logins++) await rig.login({ url, isFresh: true });
    expect([isBound.length, isBound.filter(Boolean).length]).toEqual([2 + more, 2 + more]);
  });
});

describe('refused logins', () => {
  const refused = async (change: (hostile: Hostile) => void, expected: string, options = {}) => {
    const { as, rs, rig, url, close } = await startLoginWorld();
    change({ as, rs, close });
    expect(await rig.reason({ url, ...options })).toBe(expected);
    expect(rig.store.grants()).toEqual([]);
    return { as, rs, rig };
  };

  test.each([
    [
      'login_denied',
      (as: Hostile['as']) => {
        as.person = 'denies';
      },
    ],
    [
      'login_failed',
      (as: Hostile['as']) => {
        as.editRedirect = (back) => back.set('error', 'server_error');
      },
    ],
    [
      'login_failed',
      (as: Hostile['as']) => {
        as.editRedirect = (back) => back.delete('code');
      },
    ],
    [
      'token_invalid',
      (as: Hostile['as']) => {
        as.editTokens = (answer) => ({ ...answer, token_type: 'mac' });
      },
    ],
    [
      'token_invalid',
      (as: Hostile['as']) => {
        as.editTokens = ({ access_token: _gone, ...answer }) => answer;
      },
    ],
    [
      'token_invalid',
      (as: Hostile['as']) => {
        as.editTokens = (answer) => ({ ...answer, access_token: 'a b' });
      },
    ],
    [
      'token_invalid',
      (as: Hostile['as']) => {
        as.editTokens = (answer) => ({ ...answer, access_token: 'x'.repeat(17_000) });
      },
    ],
    ['login_interrupted', (as: Hostile['as']) => as.site.fail('token', faults.lose(), 1)],
    ['login_interrupted', (as: Hostile['as']) => as.site.fail('token', faults.html(), 1)],
    ['login_failed', (as: Hostile['as']) => as.site.fail('token', faults.oauthError('invalid_grant'), 1)],
    ['login_failed', (as: Hostile['as']) => as.site.fail('token', faults.redirect('http://127.0.0.1:1/'), 1)],
  ])('%s: nothing is stored, and a code is sent at most once', async (reason, change) => {
    const { as } = await refused(({ as: server }) => change(server), reason);
    expect(as.tokenRequests().length).toBeLessThanOrEqual(1);
  });

  test('AC-A3 `iss` is absent though advertised, or differs, with a code or an error: the code is not sent, and no text of the redirect is shown', async () => {
    const { as, rig, url } = await startLoginWorld();
    const own = as.issuer;
    const lookAlikes = [
      ...[`${own}/`, own.toUpperCase(), own.replace('http', 'https'), 'https://evil.example', '', `${own}:443`],
      ...[`${own}#`, `${own}?`, ` ${own}`, own.replace('127.0.0.1', 'localhost'), `${own}/.`, `${own}%2f`],
    ];
    let refused = 0;
    for (const isAdvertised of [true, false])
      for (const isError of [true, false])
        for (const iss of isAdvertised ? [undefined, ...lookAlikes] : lookAlikes) {
          Object.assign(as, { iss, advertisesIss: isAdvertised });
          as.editRedirect = (back) => {
            if (!isError) return;
            back.set('error', 'access_denied');
            back.set('error_description', 'PLANTED TEXT');
          };
          const error = await rig.login({ url }).catch((thrown: Error) => thrown);
          expect([iss, error]).toMatchObject([iss, { details: { reason: 'issuer_mismatch' } }]);
          expect(JSON.stringify(error) + String(error)).not.toMatch(/PLANTED|evil|code-/);
          refused++;
        }
    expect(refused).toBe(4 * 12 + 2);
    as.editRedirect = (back) => back.append('iss', own);
    as.iss = 'own';
    expect(await rig.reason({ url })).toBe('issuer_mismatch');
    expect(as.tokenRequests()).toHaveLength(0);
    as.editRedirect = () => {};
    for (const iss of ['own', undefined]) {
      as.iss = iss;
      expect(await rig.reason({ url })).toBeUndefined();
    }
  });

  test('AC-A3 metadata of another issuer ends the login before any request to its endpoints', async () => {
    const { as, rig, url } = await startLoginWorld();
    const own = as.issuer;
    for (const issuer of [
      'https://evil.example',
      `${own}/x`,
      own.toUpperCase(),
      `${own}//`,
      '',
      undefined,
      7,
      `${own}?`,
      `${own}#`,
      ` ${own}`,
      own.replace('127.0.0.1', 'localhost'),
      [own],
    ]) {
      as.editMetadata = (metadata) => ({ ...metadata, issuer, token_endpoint: `${own}/token` });
      expect([issuer, await rig.reason({ url })]).toEqual([issuer, 'issuer_mismatch']);
    }
    expect([as.registrations, as.site.count('authorize'), as.tokenRequests().length]).toEqual([0, 0, 0]);
    as.editMetadata = (metadata) => ({ ...metadata, issuer: `${own}/` });
    as.iss = `${own}/`;
    expect(await rig.reason({ url })).toBeUndefined();
  });

  test('AC-A4 an authorization server without S256 is refused, unless the operator sets auth.issuer and auth.pkce to "assume"', async () => {
    const { as, rig, url } = await startLoginWorld();
    for (const methods of [undefined, [], ['plain'], 'S256']) {
      as.editMetadata = (metadata) => ({ ...metadata, code_challenge_methods_supported: methods });
      expect(await rig.reason({ url })).toBe('pkce_unsupported');
    }
    expect(as.registrations).toBe(0);
    expect(await rig.reason({ url, auth: { issuer: as.issuer, pkce: 'assume' } })).toBeUndefined();
  });

  test('AC-A18 a server that moves to another authorization server: both are named, and nothing of the first goes there', async () => {
    const { as, rs, rig, url } = await startLoginWorld();
    const other = await startHostile();
    ends.push(() => other.close());
    as.authMethods = ['client_secret_post'];
    const { row } = await rig.login({ url });
    const secret = rig.store.readClient(row.issuer, row.clientId)?.secret ?? '';
    rs.issuers = [other.as];
    other.as.resources = undefined;
    const error = await rig.login({ url }).catch((thrown: Error) => thrown);
    expect(error).toMatchObject({ details: { reason: 'issuer_changed' } });
    for (const name of [as.issuer, other.as.issuer]) expect(String(error)).toContain(name);
    expect(rig.asked).toHaveLength(1);
    expect(await rig.reason({ url, issuer: other.as.issuer })).toBeUndefined();
    const sent = JSON.stringify(other.as.site.seen.map(({ body, query, headers }) => [body, String(query), headers]));
    for (const planted of [row.clientId, secret, row.accessToken, row.refreshToken ?? '-'])
      expect(sent).not.toContain(planted);
    expect(rig.store.readGrant(row.id)?.refreshToken).toBe(row.refreshToken);
  });

  test('AC-A18 the authorization server that the person confirmed is used, even if the server names another one by then', async () => {
    const { as, rs, rig, url } = await startLoginWorld();
    const [named, hidden] = [await startHostile(), await startHostile()];
    ends.push(
      () => named.close(),
      () => hidden.close(),
    );
    for (const other of [named, hidden]) other.as.resources = undefined;
    await rig.login({ url });
    // Nothing of a later answer may replace what was confirmed.
    let reads = 0;
    rs.editPrm = (metadata) => ({ ...metadata, authorization_servers: [(reads++ === 0 ? named : hidden).as.issuer] });
    const { row } = await rig.login({ url, confirms: true });
    expect(rig.asked).toEqual([expect.stringContaining(named.as.issuer)]);
    expect(rig.asked[0]).toContain(as.issuer);
    expect([row.issuer, hidden.as.site.seen]).toEqual([named.as.issuer, []]);
  });

  test('AC-A18 a static secret stays with its issuer', async () => {
    const { as, rs, rig, url } = await startLoginWorld();
    const other = await startHostile();
    ends.push(() => other.close());
    const auth = { issuer: as.issuer, clientId: 'mine', clientSecret: 'planted-client-secret' };
    as.addClient({ client_id: 'mine', client_secret: 'planted-client-secret' });
    expect(await rig.reason({ url, auth })).toBeUndefined();
    rs.issuers = [other.as];
    expect(await rig.reason({ url, auth })).toBe('issuer_changed');
    expect(await rig.reason({ url, auth, issuer: other.as.issuer })).toBe('issuer_changed');
    expect(JSON.stringify(other.as.site.seen)).not.toContain('planted-client-secret');
    expect(other.as.tokenRequests()).toHaveLength(0);
  });

  test('AC-A2 metadata about another resource: no request reaches the authorization server', async () => {
    const { as, rs, rig, url } = await startLoginWorld();
    const { origin } = new URL(url);
    const { host } = new URL(url);
    const wrong: unknown[] = [
      ...[
        'https://evil.example/mcp',
        `https://${host}/mcp`,
        `${origin}.evil.example/mcp`,
        `${origin}1/mcp`,
        `${origin}/mc`,
      ],
      ...[
        `${origin}/mcp/deeper`,
        `${origin}/other`,
        `${origin}/mcp?x=1`,
        `${origin}/mcp#f`,
        `${origin}/mcpx`,
        `${origin}/m`,
      ],
      ...[`${origin}/../mcp`, `${origin}/./mcp`, `${origin}/mcp/..`, `${origin}/x/../mcp`, `${origin}/%2e%2e/mcp`],
      ...[
        `http://user@${host}/mcp`,
        `http://user:pw@${host}/mcp`,
        `http://@evil.example@${host}/mcp`,
        `http:\\\\${host}\\mcp`,
      ],
      ...[
        ` ${url}`,
        `${url} `,
        `${url}\n`,
        `${url}\t`,
        '',
        'mcp',
        '/mcp',
        '*',
        'urn:x',
        `${origin}/MCP`,
        `${origin}/mcp%00`,
      ],
      ...[undefined, null, 7, true, [url], { url }, `ws://${host}/mcp`, `ftp://${host}/mcp`, `${origin}/mcp\u0000`],
    ];
    expect(wrong.length).toBeGreaterThanOrEqual(40);
    for (const resource of wrong) {
      rs.editPrm = (metadata) => ({ ...metadata, resource });
      expect([resource, await rig.reason({ url })]).toEqual([resource, 'resource_mismatch']);
    }
    expect(as.site.seen).toEqual([]);
    as.resources = undefined;
    for (const resource of [url, origin, `${origin}/`, `${url}/`, url.replace('http', 'HTTP')]) {
      rs.editPrm = (metadata) => ({ ...metadata, resource });
      expect([resource, await rig.reason({ url })]).toEqual([resource, undefined]);
      expect(rig.shown.at(-1)?.url.searchParams.get('resource')).toBe(resource);
    }
  });

  test('AC-A25 a token of one URL is found for no other URL', async () => {
    const { rig, url } = await startLoginWorld();
    await rig.login({ url });
    const { origin } = new URL(url);
    for (const other of [`${url}/x`, origin, `${origin}/other`, url.replace('127.0.0.1', 'localhost'), `${url}?a=1`])
      expect(rig.store.findGrant(other, { account: '' })).toBeUndefined();
  });
});

test('AC-A9 mutated requests to the callback: none changes the login, nothing is echoed, and the port closes with the login', async () => {
  const { as, rig, url } = await startLoginWorld();
  const attacks = countFor(200, 10_000);
  const random = seededRandom(9);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const statuses = new Map<number, number>();
  let headers: Headers | undefined;
  const attack = async ({ url: shown, redirectUri }: { url: URL; redirectUri: string }) => {
    const state = shown.searchParams.get('state') ?? '';
    const base = new URL(redirectUri);
    const near = () => {
      const at = Math.floor(random() * state.length);
      const other = pick(['', 'A', '%00', '.', 'é']);
      return `${state.slice(0, at)}${other === state[at] ? '-' : other}${state.slice(at + 1)}`;
    };
    /** Parameters without the right state, or with two. */
    const query = () =>
      pick([
        () => '?code=PLANTED',
        () => `?code=PLANTED&state=${near()}`,
        () => `?code=PLANTED&state=${state}&state=${near()}`,
        () => `?code=PLANTED&State=${state}`,
        () => `?error=access_denied&error_description=PLANTED&state=${near()}`,
        () => `?state=&code=PLANTED&iss=${as.issuer}`,
        () => `?${'x'.repeat(17_000)}&code=PLANTED&state=${state}`,
        () => '?%ff%fe=%00&code=PLANTED',
      ])();
    const right = `?code=PLANTED&state=${state}&iss=${encodeURIComponent(as.issuer)}`;
    /** The right parameters at a wrong address, or wrong parameters at the right address. */
    const mutated = (): Promise<Response> =>
      pick([
        () => fetch(`${redirectUri}${query()}`),
        () => fetch(`${redirectUri}${query()}`),
        () =>
          fetch(
            `${base.origin}${pick(['/favicon.ico', '/', '/callback/', '/Callback', '//callback', '/callback%2f'])}${right}`,
          ),
        () => fetch(`${redirectUri}${right}`, { method: pick(['POST', 'PUT', 'HEAD', 'OPTIONS', 'DELETE']) }),
        () => fetch(`http://localhost:${base.port}/callback${right}`),
      ])();
    for (let sent = 0; sent < attacks; sent += 20)
      await Promise.all(
        Array.from({ length: 20 }, async () => {
          // At most ten answers a second: further ones are cut off.
          const answer = await mutated().catch(() => undefined);
          if (!answer) return;
          statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
          expect(await answer.text()).toBe('');
          expect(answer.headers.get('content-security-policy')).toBe("default-src 'none'");
          expect(JSON.stringify([...answer.headers])).not.toContain('PLANTED');
        }),
      );
    const landing = await logIn(shown.href);
    headers = landing.headers;
    expect(landing.text).not.toContain(state);
  };
  const { row } = await rig.login({ url, person: attack, timeoutMs: 120_000 });
  const endedAtMs = performance.now();
  expect(row.state).toBe('live');
  expect([...statuses.keys()].sort()).toEqual([400, 404]);
  expect(as.tokenRequests()).toHaveLength(1);
  expect(headers?.get('content-security-policy')).toBe("default-src 'none'");
  expect(headers?.get('referrer-policy')).toBe('no-referrer');
  await eventually('the port is closed', () =>
    fetch(rig.shown[0]?.redirectUri ?? '').then(
      () => false,
      () => true,
    ),
  );
  expect(performance.now() - endedAtMs).toBeLessThan(timeLimitMs(100));
}, 150_000);
