/**
 * One login at the hostile server, by the official client or by Hostler, as the server recorded it: documents read, client id,
 * scopes and resource used, and the outcome.
 */
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';
import type { Hostile } from '../fixtures/identity/hostile.js';
import { MemoryProvider, type SdkLoginOptions } from '../fixtures/identity/sdk-login.js';

export interface Observed {
  readonly outcome: 'granted' | 'refused';
  /** Name of the address whose document was used. */
  readonly metadata: string;
  readonly client: 'registered' | 'metadata document' | 'given' | '-';
  readonly scope: string;
  readonly resource: 'the server' | 'other' | '-';
  /** `basic, encoded`: client id or secret have escapes, which many servers do not decode. */
  readonly authentication: 'none' | 'basic' | 'basic, encoded' | 'post' | 'assertion' | '-';
}

const metadataPlaces = ['as-inserted', 'oidc-inserted', 'oidc-appended', 'as-root', 'oidc-root'];

/** Summarises one login from the requests since the start of the hostile server. */
export function observe({ as, rs }: Hostile): Observed {
  const authorize = as.site.at('authorize').at(-1)?.query;
  const token = as.site.at('token').at(-1);
  const id = authorize?.get('client_id') ?? token?.form.get('client_id') ?? '';
  const read = as.site.seen.map(({ place }) => place).filter((place) => metadataPlaces.includes(place));
  const resource = authorize?.get('resource') ?? null;
  const granted = [...as.grants.tokens.values()].length > 0;
  return {
    outcome: granted ? 'granted' : 'refused',
    metadata: read.filter((place) => as.metadataAt.includes(place as never)).at(-1) ?? '-',
    client:
      id === '' ? '-' : id.startsWith('https://') ? 'metadata document' : as.registrations > 0 ? 'registered' : 'given',
    scope: authorize?.get('scope') ?? '-',
    resource: resource === null ? '-' : resource === rs.url ? 'the server' : 'other',
    authentication: authenticationOf(token),
  };
}

function authenticationOf(
  token: ReturnType<Hostile['as']['site']['at']>[number] | undefined,
): Observed['authentication'] {
  if (!token) return '-';
  if (token.form.has('client_assertion')) return 'assertion';
  const basic = /^Basic (.+)$/.exec(token.headers.authorization ?? '')?.[1];
  if (basic !== undefined) return Buffer.from(basic, 'base64').includes('%') ? 'basic, encoded' : 'basic';
  return token.form.has('client_secret') ? 'post' : 'none';
}

/** Connects with the official client, logs in when the server asks for it, and calls a tool. */
export async function sdkConnects({ rs }: Hostile, options: SdkLoginOptions = {}): Promise<void> {
  const provider = new MemoryProvider(options);
  for (let logins = 0; logins < 2; logins++) {
    const client = new Client({ name: 'sdk', version: '1' });
    const transport = new StreamableHTTPClientTransport(new URL(rs.url), { authProvider: provider });
    try {
      await client.connect(transport);
      await client.callTool({ name: 'read', arguments: {} });
      return;
    } catch (error) {
      const back = provider.landing?.location?.searchParams;
      if (!(error instanceof UnauthorizedError) || !back) return;
      await transport.finishAuth(back).catch(() => {});
    } finally {
      await client.close();
    }
  }
}
