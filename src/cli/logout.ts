/** `hostler logout`: revokes the tokens of one server or URL and removes them, even if the authorization server cannot be reached. */
import type { AuthSettings } from '../config/auth-settings.js';
import { type GrantRow, sameIssuer } from '../identity/grant-row.js';
import type { GrantFilter } from '../identity/identity-store.js';
import { createOAuthHttp, type OAuthHttp } from '../identity/oauth-http.js';
import { type OAuthClient, revokeGrant } from '../identity/token-endpoint.js';
import { systemClock } from '../kernel/clock.js';
import { isHostError } from '../kernel/errors.js';
import { systemRandom } from '../kernel/random.js';
import { type Command, jsonOption, type ParsedArgs, usageError } from './command.js';
import { openUserStore, remoteServer } from './config/identity-config.js';
import { EXIT } from './exit-codes.js';
import { configOption } from './login.js';
import { printJson, printLines } from './output/print.js';

export const logout: Command = {
  name: 'logout',
  usage: 'SERVER|URL [--account NAME] [--keep-remote] [--json]',
  example: 'logout docs',
  options: {
    'account=': 'with a URL: the auth.account of the login',
    'keep-remote': 'forget the tokens here only; do not revoke them',
    ...jsonOption,
    ...configOption,
  },
  positionals: [1, 1],
  async run(args) {
    const { name, url, filter, authWithSecrets, http } = await targetOf(args);
    const store = await openUserStore(process.env, false);
    // All logins that the server could use: if only the newest were removed, a host would use the one before it.
    const rows = store?.servedGrants(url, filter) ?? [];
    if (!store || rows.length === 0) {
      if (args.has('json')) printJson({ server: name, isForgotten: false, isRevoked: false });
      else printLines([`${name}: there is no login`]);
      return EXIT.failed;
    }
    const secrets = rows.map(({ issuer, clientId }) => store.readClient(issuer, clientId)?.secret);
    // Removed before the requests: a token must not be used once it was sent for revocation.
    for (const { id } of rows) store.removeGrant(id);
    const auth = args.has('keep-remote') ? undefined : await authWithSecrets().catch(warn);
    const revoked: boolean[] = [];
    for (const [at, row] of args.has('keep-remote') ? [] : rows.entries()) {
      const where = {
        issuer: row.issuer,
        client: clientOf(row, auth, secrets[at]),
        endpoint: row.facts.revocationEndpoint,
      };
      revoked.push(await revokeGrant(http, where, row));
    }
    const isRevoked = revoked.length > 0 && revoked.every(Boolean);
    const remote = args.has('keep-remote')
      ? 'not revoked, as you asked'
      : rows.every(({ facts }) => facts.revocationEndpoint === undefined)
        ? 'not revoked: the authorization server cannot do that'
        : isRevoked
          ? 'revoked at the authorization server'
          : 'not revoked: the authorization server did not confirm it; end the session in your account there';
    const count = rows.length === 1 ? '' : `${rows.length} logins `;
    if (args.has('json')) printJson({ server: name, isForgotten: true, isRevoked });
    else printLines([`${name}: ${count}forgotten here; ${remote}`]);
    return EXIT.done;
  },
};

interface Target {
  readonly name: string;
  readonly url: string;
  /** Selects the logins of the URL. */
  readonly filter: GrantFilter;
  /** Resolves with undefined for a URL, because the configuration has no client for it. */
  authWithSecrets(): Promise<AuthSettings | undefined>;
  readonly http: OAuthHttp;
}

/** A URL stands for a login that no server of the configuration uses. */
async function targetOf(args: ParsedArgs): Promise<Target> {
  const [name = ''] = args.positionals;
  const account = args.text('account');
  if (/^https?:/.test(name) && URL.canParse(name)) {
    const parts = { clock: systemClock, random: systemRandom, env: process.env };
    const http = createOAuthHttp({ server: name, url: name, ...parts });
    return { name, url: name, filter: { account }, authWithSecrets: async () => undefined, http };
  }
  if (account !== undefined)
    throw usageError(logout, '--account needs a URL; a server has its account in auth.account');
  const { spec, auth, ...server } = await remoteServer(args, process.env);
  return { ...server, filter: auth, url: spec.url };
}

/** Prints why the secrets of the client are missing. The login is removed all the same; only its tokens may not be revoked. */
function warn(error: unknown): undefined {
  if (!isHostError(error)) throw error;
  printLines([`hostler: ${error.message}`], process.stderr);
}

/** The secret of the configuration is for one client at one issuer; the login may belong to another client. */
function clientOf(row: GrantRow, auth: AuthSettings | undefined, stored: string | undefined): OAuthClient {
  const { issuer, clientId, facts } = row;
  const isOwn = auth?.clientId === clientId && auth.issuer !== undefined && sameIssuer(auth.issuer, issuer);
  const { clientSecret, clientKey: key } = isOwn ? auth : {};
  return { clientId, method: facts.authMethod, secret: facts.way === 'configured' ? clientSecret : stored, key };
}
