/** Login cases for Hostler and the official client, each with switches of the hostile server. */
import { type Hostile, startHostile } from '../fixtures/identity/hostile.js';
import { faults } from '../fixtures/identity/site.js';

export interface LoginCase {
  readonly name: string;
  readonly options?: Parameters<typeof startHostile>[0];
  readonly prepare?: (hostile: Hostile) => void;
  /** The kind of client that the `auth` entry gives, and that the official client gets too. */
  readonly given?: 'metadata document' | 'client' | 'secret';
  /** Why Hostler differs from the official client; undefined: it does not differ. */
  readonly reason?: string;
}

export const clientMetadataUrl = 'https://client.example/client.json';
export const givenClient = { client_id: 'given-client', client_secret: 'given-secret-value' };

export const loginCases: readonly LoginCase[] = [
  {
    name: 'era 2025-03-26: the origin of the server',
    options: { era: '2025-03-26' },
    reason: 'Hostler always names the server, so that the token is bound to it',
  },
  { name: 'era 2025-06-18: named resource metadata', options: { era: '2025-06-18' } },
  { name: 'era 2025-11-25: resource metadata at the well-known path', options: { era: '2025-11-25' } },
  { name: 'era 2026-07-28: with iss' },
  { name: 'resource metadata at the root', prepare: ({ rs }) => move(rs, 'prm-root', undefined) },
  {
    name: 'resource metadata at an address that the challenge names',
    prepare: ({ rs }) => move(rs, 'prm-custom', 'prm-custom'),
  },
  { name: 'issuer with a path, RFC 8414', options: { issuerPath: '/tenant' } },
  {
    name: 'issuer with a path, OpenID metadata before the path',
    options: { issuerPath: '/tenant' },
    prepare: ({ as }) => Object.assign(as, { metadataAt: ['oidc-inserted'] }),
  },
  {
    name: 'issuer with a path, OpenID metadata after the path',
    options: { issuerPath: '/tenant' },
    prepare: ({ as }) => Object.assign(as, { metadataAt: ['oidc-appended'] }),
  },
  { name: 'client metadata document', given: 'metadata document' },
  {
    name: 'registration, as the given document is not accepted',
    given: 'metadata document',
    prepare: ({ as }) => Object.assign(as, { cimd: false }),
  },
  { name: 'client that the operator created', given: 'client' },
  { name: 'client with a secret', given: 'secret' },
  {
    name: 'secret in the body',
    given: 'secret',
    prepare: ({ as }) => Object.assign(as, { authMethods: ['client_secret_post'] }),
  },
  {
    name: 'registration with a secret, Basic',
    prepare: ({ as }) => Object.assign(as, { authMethods: ['client_secret_basic'] }),
  },
  {
    name: 'registration with a secret in the body',
    prepare: ({ as }) => Object.assign(as, { authMethods: ['client_secret_post'] }),
  },
  {
    name: 'scopes of the challenge',
    prepare: ({ rs }) => Object.assign(rs, { challengeScope: 'read', prmScopes: ['read', 'write'] }),
  },
  {
    name: 'challenge at the first list, not at the handshake',
    prepare: ({ rs }) => Object.assign(rs, { hasOpenHandshake: true, challengeScope: 'read' }),
  },
  { name: 'scopes of the resource metadata', prepare: ({ rs }) => Object.assign(rs, { prmScopes: ['read', 'write'] }) },
  {
    name: 'offline_access, which the authorization server lists',
    prepare: ({ as, rs }) => {
      rs.challengeScope = 'read';
      as.scopesSupported = ['read', 'offline_access'];
    },
  },
  {
    name: 'offline_access is listed, and no scopes are named',
    prepare: ({ as }) => Object.assign(as, { scopesSupported: ['read', 'offline_access'] }),
  },
  {
    name: 'resource metadata of another server',
    reason: 'Hostler compares the resource before it asks the authorization server',
    prepare: ({ rs }) => edit(rs, { resource: 'https://elsewhere.example/mcp' }),
  },
  { name: 'metadata of another issuer', prepare: ({ as }) => wrong(as, { issuer: 'https://elsewhere.example' }) },
  { name: 'no S256', prepare: ({ as }) => wrong(as, { code_challenge_methods_supported: ['plain'] }) },
  { name: 'iss of another issuer', prepare: ({ as }) => Object.assign(as, { iss: 'https://elsewhere.example' }) },
  { name: 'iss with an additional slash', prepare: ({ as }) => Object.assign(as, { iss: `${as.issuer}/` }) },
  { name: 'no iss although announced', prepare: ({ as }) => Object.assign(as, { iss: undefined }) },
  { name: 'metadata answers 500', prepare: ({ as }) => as.site.fail('as-inserted', faults.status(500)) },
  { name: 'metadata is an HTML page', prepare: ({ as }) => as.site.fail('as-inserted', faults.html()) },
  { name: 'registration refused', prepare: ({ as }) => Object.assign(as, { registration: 'refused', cimd: false }) },
  { name: 'the person denies', prepare: ({ as }) => Object.assign(as, { person: 'denies' }) },
];

function move(rs: Hostile['rs'], to: 'prm-root' | 'prm-custom', named: 'prm-custom' | undefined): void {
  rs.prmAt = [to];
  rs.challengeNames = named;
}

function edit(rs: Hostile['rs'], change: Record<string, unknown>): void {
  rs.editPrm = (metadata) => ({ ...metadata, ...change });
}

function wrong(as: Hostile['as'], change: Record<string, unknown>): void {
  as.editMetadata = (metadata) => ({ ...metadata, ...change });
}

/** Starts the server of a case, and creates the client of the operator there. */
export async function startCase({ options, prepare, given }: LoginCase): Promise<Hostile> {
  const hostile = await startHostile(options);
  const { as } = hostile;
  prepare?.(hostile);
  if (given === 'secret') {
    const token_endpoint_auth_method = as.authMethods.includes('client_secret_post')
      ? 'client_secret_post'
      : 'client_secret_basic';
    if (token_endpoint_auth_method === 'client_secret_basic') as.authMethods = ['client_secret_basic'];
    as.addClient({ ...givenClient, token_endpoint_auth_method });
  } else if (given === 'client') as.addClient({ client_id: givenClient.client_id });
  return hostile;
}
