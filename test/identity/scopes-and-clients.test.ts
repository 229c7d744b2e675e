/** Calls that are refused with 403 and `insufficient_scope`, and grants without a person, through a host. */
import { generateKeyPairSync } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { eventually } from '../eventually.js';
import type { Hostile } from '../fixtures/identity/hostile.js';
import { faults } from '../fixtures/identity/site.js';
import { hostOn, startLoginWorld } from './login-world.js';

const tools = ['t1', 't2', 't3', 't4', 't5'];

async function world(auth?: (hostile: Hostile) => object, clock?: FakeClock) {
  const hostile = await startLoginWorld({ tools });
  const { url, rig } = hostile;
  const mcpServers = { docs: { url, ...(auth ? { auth: auth(hostile) } : {}) } };
  /** Starts a host with the server. */
  const beside = () => {
    const { host, call } = hostOn(rig, clock ? { clock } : {});
    return { host, open: () => host.open({ mcpServers }), call: (tool: string) => call('docs', tool, { nonce: tool }) };
  };
  return { ...hostile, ...beside(), beside };
}

/** The world, with a clock that its hosts use to look for logins of other processes. */
async function clockedWorld() {
  const clock = new FakeClock();
  const made = await world(undefined, clock);
  const { rig, url } = made;
  const login = () => rig.login({ url, clock });
  /** Logs in as another process would. Afterwards every host has the token. */
  const loginElsewhere = async () => {
    clock.advance(1_000);
    await login();
    rig.touch();
    clock.advance(1_000);
  };
  return { ...made, login, loginElsewhere };
}

describe('AC-A17 a call that needs more scopes', () => {
  test('AC-A17 five tools with five scopes: five logins, each asks for the union, and never a refresh', async () => {
    const { as, rs, rig, open, call, host, login, loginElsewhere } = await clockedWorld();
    rs.toolScopes = Object.fromEntries(tools.map((tool) => [tool, [`scope-${tool}`]]));
    await login();
    await open();
    const asked: string[] = [];
    for (const tool of tools) {
      expect([tool, await call(tool)]).toEqual([tool, 'needs_reauth insufficient_scope']);
      expect(host.status()[0]?.auth).toMatchObject({ state: 'step_up', next: 'run: hostler login docs' });
      await loginElsewhere();
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
    const { as, rs, open, call, login, loginElsewhere } = await clockedWorld();
    rs.toolScopes = { t1: ['admin'] };
    as.grantScopes = () => ['base'];
    await login();
    await open();
    expect(await call('t1')).toBe('needs_reauth insufficient_scope');
    for (const expected of ['insufficient_scope', 'scope_denied']) {
      await loginElsewhere();
      expect(await call('t1')).toBe(`needs_reauth ${expected}`);
    }
    expect(await call('t2')).toBe('done');
  });

  test('AC-A17 two hosts that need different scopes at the same time: one login gets both scopes, and serves both hosts', async () => {
    const { rs, rig, beside, login, loginElsewhere, ...one } = await clockedWorld();
    rs.toolScopes = { t1: ['scope-t1'], t2: ['scope-t2'] };
    const other = beside();
    await login();
    await Promise.all([one.open(), other.open()]);
    const refused = 'needs_reauth insufficient_scope';
    expect(await Promise.all([one.call('t1'), other.call('t2')])).toEqual([refused, refused]);
    await loginElsewhere();
    const asked = rig.shown.at(-1)?.url.searchParams.get('scope')?.split(' ').sort();
    expect(asked).toEqual(['scope-t1', 'scope-t2']);
    for (const { call } of [one, other]) expect([await call('t1'), await call('t2')]).toEqual(['done', 'done']);
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
    // The token ends early: this causes one more request, and no failed call.
    as.grants.expireAccessTokens();
    expect(await call('t2')).toBe('done');
    expect(as.tokenRequests()).toHaveLength(2);
    expect([as.registrations, as.site.count('authorize')]).toEqual([0, 0]);
    expect(host.status()[0]?.auth).toMatchObject({ grant: 'client_credentials', state: 'granted', needsLogin: false });
    // The host asks for more scopes by itself, together with those it has.
    rs.toolScopes = { t3: ['more'] };
    expect(await call('t3')).toBe('done');
    expect(as.tokenRequests().at(-1)?.form.get('scope')).toBe('more');
  });

  test('AC-A20 two hosts that need other scopes at the same time: no call fails, and some requests later the token is for both', async () => {
    const { as, rs, beside, ...one } = await world(({ as: { issuer } }) => ({
      ...{ grant: 'client_credentials', issuer, clientId: 'job', clientSecret: 'secret-of-the-job' },
    }));
    as.addClient({ client_id: 'job', client_secret: 'secret-of-the-job' });
    rs.toolScopes = { t1: ['scope-t1'], t2: ['scope-t2'] };
    const other = beside();
    await Promise.all([one.open(), other.open()]);
    const scopes = () => as.tokenRequests().at(-1)?.form.get('scope')?.split(' ').sort();
    const rounds = async (count: number) => {
      for (let round = 0; round < count; round++)
        expect(await Promise.all([one.call('t1'), other.call('t2')])).toEqual(['done', 'done']);
      return `${scopes()}` === 'scope-t1,scope-t2';
    };
    await rounds(10);
    await eventually('the token is for both', () => rounds(1));
    await rounds(10);
    expect(as.tokenRequests().length).toBeLessThanOrEqual(6);
  });

  test('AC-A20 an entry for a person and one for a service with the same address use their own tokens', async () => {
    const { as, rs, rig, url } = await startLoginWorld({ tools });
    as.addClient({ client_id: 'job', client_secret: 'secret-of-the-job' });
    const auth = {
      ...{ grant: 'client_credentials', issuer: as.issuer, clientId: 'job', clientSecret: 'secret-of-the-job' },
    };
    const { row } = await rig.login({ url });
    const { host, call } = hostOn(rig);
    await host.open({ mcpServers: { docs: { url }, job: { url, auth } } });
    expect([await call('docs', 't1'), await call('job', 't1')]).toEqual(['done', 'done']);
    // The token of the service is the newest one for this address.
    as.grants.expireAccessTokens();
    expect([await call('docs', 't2'), await call('job', 't2')]).toEqual(['done', 'done']);
    const clients = rs.executed.map(({ token }) => as.grants.active(token)?.clientId ?? 'expired');
    expect(clients).toEqual(['expired', 'expired', row.clientId, 'job']);
    expect(host.status().map(({ auth: shown }) => shown?.clientId)).toEqual([row.clientId, 'job']);
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
