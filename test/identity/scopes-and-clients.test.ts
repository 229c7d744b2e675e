/** 403 with `insufficient_scope`, and grants without a person, through a host. */
import { generateKeyPairSync } from 'node:crypto';
import { afterEach, describe, expect, test } from 'vitest';
import { Host } from '../../src/host/host.js';
import { Identity } from '../../src/identity/identity.js';
import { systemClock } from '../../src/kernel/clock.js';
import { isHostError } from '../../src/kernel/errors.js';
import { systemRandom } from '../../src/kernel/random.js';
import { createRedactor } from '../../src/kernel/redact.js';
import { eventually } from '../eventually.js';
import { type Hostile, startHostile } from '../fixtures/identity/hostile.js';
import { faults } from '../fixtures/identity/site.js';
import { LoginRig } from './login-rig.js';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

const tools = ['t1', 't2', 't3', 't4', 't5'];

async function world(auth?: (hostile: Hostile) => object) {
  const hostile = await startHostile({ tools });
  const rig = new LoginRig();
  const identity = new Identity({
    ...{ folder: rig.folder, clock: systemClock, random: systemRandom, redactor: createRedactor() },
    onProblem: () => {},
  });
  const host = new Host({ authProvider: (server) => identity.providerFor(server), onProblem: () => {} });
  ends.push(
    () => rig.end(),
    () => hostile.close(),
    () => identity.close(),
    () => host.close(),
  );
  const open = () =>
    host.open({ mcpServers: { docs: { url: hostile.rs.url, ...(auth ? { auth: auth(hostile) } : {}) } } });
  const call = (tool: string) =>
    host.call('docs', tool, { nonce: tool }).then(
      () => 'done',
      (error: unknown) => (isHostError(error) ? `${error.code} ${error.details.reason}` : String(error)),
    );
  return { ...hostile, rig, host, open, call, url: hostile.rs.url };
}

/** A login as of another process, until the host has its token. */
async function loginElsewhere(rig: LoginRig, host: Host, url: string): Promise<void> {
  const { row } = await rig.login({ url });
  rig.touch();
  const since = row.issuedMs;
  await eventually('the host has the token', () => {
    const { expiresAt = '' } = host.status()[0]?.auth ?? {};
    return Date.parse(expiresAt) === since + 3_600_000;
  });
}

describe('AC-A17 a call that needs more scopes', () => {
  test('AC-A17 five tools with five scopes: five logins, each asks for the union, and never a refresh', async () => {
    const { as, rs, rig, open, call, url, host } = await world();
    rs.toolScopes = Object.fromEntries(tools.map((tool) => [tool, [`scope-${tool}`]]));
    await rig.login({ url });
    await open();
    const asked: string[] = [];
    for (const tool of tools) {
      expect([tool, await call(tool)]).toEqual([tool, 'needs_reauth insufficient_scope']);
      expect(host.status()[0]?.auth).toMatchObject({ state: 'step_up', next: 'run: hostler login docs' });
      await loginElsewhere(rig, host, url);
      asked.push(rig.shown.at(-1)?.url.searchParams.get('scope') ?? '');
      expect(await call(tool)).toBe('done');
    }
    expect(asked).toEqual(
      tools.map((_, at) =>
        tools
          .slice(0, at + 1)
          .map((tool) => `scope-${tool}`)
          .join(' '),
      ),
    );
    expect(as.tokenRequests('refresh_token')).toHaveLength(0);
    expect(host.status()[0]?.state).toBe('ready');
  });

  test('AC-A17 scopes that are never granted: two logins, then scope_denied', async () => {
    const { as, rs, rig, open, call, url, host } = await world();
    rs.toolScopes = { t1: ['admin'] };
    as.grantScopes = () => ['base'];
    await rig.login({ url });
    await open();
    expect(await call('t1')).toBe('needs_reauth insufficient_scope');
    for (const expected of ['insufficient_scope', 'scope_denied']) {
      await loginElsewhere(rig, host, url);
      expect(await call('t1')).toBe(`needs_reauth ${expected}`);
    }
    expect(await call('t2')).toBe('done');
  });
});

describe('AC-A20 grants without a person', () => {
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const pem = keys.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  const publicKey = keys.publicKey.export({ type: 'spki', format: 'pem' }).toString();

  test.each(['client_secret_basic', 'client_secret_post', 'private_key_jwt'] as const)('AC-A20 %s', async (method) => {
    const isKey = method === 'private_key_jwt';
    const { as, rs, open, call, host } = await world(({ as: { issuer } }) => ({
      ...{ grant: 'client_credentials', issuer, clientId: 'job' },
      ...(isKey ? { clientKey: { pem } } : { clientSecret: 'secret of/the+job' }),
    }));
    as.authMethods = [method];
    as.addClient({
      ...{ client_id: 'job', token_endpoint_auth_method: method },
      ...(isKey ? { publicKey } : { client_secret: 'secret of/the+job' }),
    });
    await open();
    expect(await call('t1')).toBe('done');
    const [first] = as.tokenRequests('client_credentials');
    expect(first?.form.get('resource')).toBe(rs.url);
    // The token ends early: one more request, no failed call.
    as.grants.expireAccessTokens();
    expect(await call('t2')).toBe('done');
    expect(as.tokenRequests()).toHaveLength(2);
    expect([as.registrations, as.site.count('authorize')]).toEqual([0, 0]);
    expect(host.status()[0]?.auth).toMatchObject({ grant: 'client_credentials', state: 'granted', needsLogin: false });
    // More scopes are asked for by itself, as a union.
    rs.toolScopes = { t3: ['more'] };
    expect(await call('t3')).toBe('done');
    expect(as.tokenRequests().at(-1)?.form.get('scope')).toBe('more');
  });

  test('AC-A20 a refused client is not tried again, and the error says what to correct', async () => {
    const { as, open, host, call } = await world(({ as: { issuer } }) => ({
      ...{ grant: 'client_credentials', issuer, clientId: 'job', clientSecret: 'wrong-secret' },
    }));
    as.addClient({ client_id: 'job', client_secret: 'right-secret' });
    await open();
    const error = await host.call('docs', 't1', {}).catch((thrown: Error) => thrown);
    expect(error).toMatchObject({ code: 'needs_reauth', hint: expect.stringContaining('auth.clientSecret') });
    for (let calls = 0; calls < 20; calls++) expect(await call('t1')).toContain('needs_reauth');
    expect(as.tokenRequests()).toHaveLength(1);
    expect(JSON.stringify(error)).not.toContain('wrong-secret');
  });

  test('AC-A15 an authorization server that is away: the call may be repeated, and no login is asked for', async () => {
    const { as, rig, open, host, url } = await world();
    await rig.login({ url });
    await open();
    await host.call('docs', 't1', {});
    as.site.fail('token', faults.status(503));
    as.grants.expireAccessTokens();
    const error = await host.call('docs', 't1', {}).catch((thrown: Error) => thrown);
    expect(error).toMatchObject({ code: 'reconnecting', details: { retryAfterMs: expect.any(Number) } });
    expect(host.status()[0]?.state).not.toBe('auth_required');
    as.site.heal();
    await eventually('it is called again', () =>
      host.call('docs', 't1', {}).then(
        () => true,
        () => false,
      ),
    );
  });
});
