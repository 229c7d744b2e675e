/** `hostler logout`: revokes the tokens of one server and forgets them, also if its authorization server cannot be reached. */
import { revokeToken } from '../identity/token-endpoint.js';
import { type Command, jsonOption } from './command.js';
import { openUserStore, remoteServer } from './config/identity-config.js';
import { EXIT } from './exit-codes.js';
import { configOption } from './login.js';
import { printJson, printLines } from './output/print.js';

export const logout: Command = {
  name: 'logout',
  usage: 'SERVER [--keep-remote] [--json]',
  example: 'logout docs',
  options: { 'keep-remote': 'forget the tokens here only; do not revoke them', ...jsonOption, ...configOption },
  positionals: [1, 1],
  async run(args) {
    const { name, spec, auth, http } = await remoteServer(args, process.env);
    const store = await openUserStore(process.env, false);
    const row = store?.findGrant(spec.url, auth);
    if (!store || !row) {
      if (args.has('json')) printJson({ server: name, isForgotten: false, isRevoked: false });
      else printLines([`${name}: there is no login`]);
      return EXIT.failed;
    }
    const { issuer, clientId, facts, accessToken, refreshToken } = row;
    const stored = store.readClient(issuer, clientId);
    // Before the request: a token that was sent for revocation must not be used any more.
    store.removeGrant(row.id);
    const { revocationEndpoint: endpoint, authMethod: method, way } = facts;
    const secret = way === 'configured' ? auth.clientSecret : stored?.secret;
    const client = { clientId, method, secret, key: auth.clientKey };
    const results: boolean[] = [];
    if (endpoint !== undefined && !args.has('keep-remote')) {
      const where = { issuer, client, endpoint };
      if (refreshToken !== undefined) results.push(await revokeToken(http, where, refreshToken, 'refresh_token'));
      if (accessToken !== '') results.push(await revokeToken(http, where, accessToken, 'access_token'));
    }
    const isRevoked = results.length > 0 && results.every(Boolean);
    const remote = args.has('keep-remote')
      ? 'not revoked, as you asked'
      : endpoint === undefined
        ? 'not revoked: the authorization server cannot do that'
        : isRevoked
          ? 'revoked at the authorization server'
          : 'not revoked: the authorization server did not confirm it; end the session in your account there';
    if (args.has('json')) printJson({ server: name, isForgotten: true, isRevoked });
    else printLines([`${name}: forgotten here; ${remote}`]);
    return EXIT.done;
  },
};
