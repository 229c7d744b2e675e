/** Every way to be a client, in every era: discovery, login, a call with the token, and its renewal as the same client. */
import { describe, expect, test } from 'vitest';
import { authEras, type Hostile } from '../fixtures/identity/hostile.js';
import { hostOn, startLoginWorld } from './login-world.js';

type Server = Hostile['as'];

const eras = [...authEras, '2025-03-26 without metadata'] as const;
const documentUrl = 'https://client.example/hostler.json';
const clientSecret = 'secret-of-the-client';

interface Kind {
  readonly name: string;
  readonly way: 'configured' | 'metadata_document' | 'registered';
  readonly prepare: (as: Server) => unknown;
  readonly auth: (as: Server) => Record<string, unknown>;
}

const kinds: readonly Kind[] = [
  {
    name: 'a public client of the configuration',
    way: 'configured',
    prepare: (as) => as.addClient({ client_id: 'by-hand' }),
    auth: () => ({ clientId: 'by-hand' }),
  },
  {
    name: 'a client of the configuration with a secret',
    way: 'configured',
    prepare: (as) => {
      as.authMethods = ['client_secret_basic'];
      as.addClient({ client_id: 'by-hand', client_secret: clientSecret });
    },
    auth: ({ issuer }) => ({ issuer, clientId: 'by-hand', clientSecret }),
  },
  {
    name: 'a metadata document',
    way: 'metadata_document',
    prepare: (as) => Object.assign(as, { cimd: true }),
    auth: () => ({ clientMetadataUrl: documentUrl }),
  },
  {
    name: 'a registration, because metadata documents are not accepted',
    way: 'registered',
    prepare: (as) => Object.assign(as, { cimd: false }),
    auth: () => ({ clientMetadataUrl: documentUrl }),
  },
];

/** Starts the servers of an era. Those of `2025-03-26 without metadata` serve no metadata at any address. */
async function worldOf(name: (typeof eras)[number]) {
  const isBare = name === '2025-03-26 without metadata';
  const world = await startLoginWorld({ era: isBare ? '2025-03-26' : name });
  if (isBare) world.as.metadataAt = [];
  return world;
}

const clientOf = (seen: ReturnType<Server['tokenRequests']>[number] | undefined): string | null | undefined => {
  const basic = /^Basic (.+)$/.exec(seen?.headers.authorization ?? '')?.[1];
  return basic === undefined ? seen?.form.get('client_id') : Buffer.from(basic, 'base64').toString();
};

describe.each(eras)('AC-A1 AC-A5 in the era %s', (era) => {
  const isBare = era === '2025-03-26 without metadata';

  test.each(kinds)('AC-A1 AC-A5 $name', async ({ prepare, auth: authOf, way }) => {
    const { as, rs, rig, url } = await worldOf(era);
    prepare(as);
    const auth = authOf(as);
    if (isBare && auth.issuer !== undefined) {
      // A configured issuer must have metadata: default paths are used only if no issuer is known.
      const error = await rig.login({ url, auth }).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({ details: { reason: 'metadata_unreachable' }, hint: 'check auth.issuer' });
      expect(as.tokenRequests()).toEqual([]);
      return;
    }
    const expected = isBare && way === 'metadata_document' ? 'registered' : way;
    const { row, isOldest } = await rig.login({ url, auth });
    expect([row.facts.way, row.issuer, row.resource]).toEqual([expected, as.issuer, url]);
    expect(isOldest).toBe(era.startsWith('2025-03-26') && auth.issuer === undefined);
    expect(as.registrations).toBe(expected === 'registered' ? 1 : 0);
    const { host, call } = hostOn(rig);
    await host.open({ mcpServers: { docs: { url, auth } } });
    expect(await call()).toBe('done');
    as.grants.expireAccessTokens();
    expect(await call()).toBe('done');
    const [redeemed, renewed, ...further] = as.tokenRequests();
    expect([renewed?.form.get('grant_type'), renewed?.form.get('resource'), further]).toEqual([
      ...['refresh_token', url, []],
    ]);
    expect(clientOf(renewed)).toBe(clientOf(redeemed));
    expect(clientOf(renewed)).toBe(auth.clientSecret === undefined ? row.clientId : `by-hand:${clientSecret}`);
    expect(rig.store.readGrant(row.id)).toMatchObject({ gen: 2, state: 'live' });
    expect(rs.executed).toHaveLength(2);
  });

  test('AC-A5 if no kind of client is possible, no URL is shown, and the error says which client to create', async () => {
    const { as, rig, url } = await worldOf(era);
    Object.assign(as, { registration: 'none', cimd: false });
    const error = await rig.login({ url }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({
      details: { reason: isBare ? 'registration_refused' : 'client_needed' },
      hint: expect.stringMatching(/redirect URI http:\/\/127\.0\.0\.1:\d+\/callback/),
    });
    // The entry to paste.
    const { hint } = error as { hint: string };
    const entry = JSON.parse(`{${/"auth": .*\}\}/.exec(hint)?.[0]}}`) as { auth: { issuer: string } };
    expect(entry.auth.issuer).toBe(as.issuer);
    expect([rig.shown, as.tokenRequests()]).toEqual([[], []]);
  });
});
