/** For the commands that use logins: opens the store of the user, and finds the servers over HTTP in the configuration. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { loadLibsql } from '../../catalog/store/libsql.js';
import { type AuthSettings, authEntry } from '../../config/auth-settings.js';
import { parseHostConfig } from '../../config/host-config.js';
import { type HttpServerSpec, isAttached, isStdio } from '../../config/server-spec.js';
import { identityPlace } from '../../identity/identity-place.js';
import type { IdentityStore } from '../../identity/identity-store.js';
import { createOAuthHttp, type OAuthHttp } from '../../identity/oauth-http.js';
import { identityFileName, openStore } from '../../identity/open-store.js';
import { withSecrets } from '../../identity/registration.js';
import { systemClock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { nearestName } from '../../kernel/nearest-name.js';
import { systemRandom } from '../../kernel/random.js';
import { createRedactor, type Redactor } from '../../kernel/redact.js';
import type { ParsedArgs } from '../command.js';
import { askTrust } from '../trust/ask-trust.js';
import { TrustedSource } from '../trust/trusted-source.js';
import { createSecrets } from '../up/create-secrets.js';
import { commandConfig } from './running-hosts.js';

/** Returns undefined if there is no store yet and `mayCreate` is false. */
export async function openUserStore(env: NodeJS.ProcessEnv, mayCreate: boolean): Promise<IdentityStore | undefined> {
  const { folder, key, error } = identityPlace(env);
  if (error) throw error;
  if (folder === undefined)
    throw new HostError('invalid_spec', 'there is no folder for tokens: HOME is not set', {
      reason: 'no_home',
      hint: 'set HOME or XDG_DATA_HOME',
    });
  if (!mayCreate && !existsSync(path.join(folder, identityFileName))) return undefined;
  await loadLibsql();
  return openStore({ folder, key, onProblem: (error) => process.stderr.write(`${String(error)}\n`) });
}

export interface RemoteServer {
  readonly name: string;
  readonly spec: HttpServerSpec;
  readonly auth: AuthSettings;
  /** `auth` with the values of its references. Runs the commands of `${exec:NAME}`. */
  authWithSecrets(): Promise<AuthSettings>;
  readonly http: OAuthHttp;
  readonly redactor: Redactor;
  /** The headers of the entry, with the values of their references. */
  headers(): Promise<Record<string, string>>;
}

/** All servers over HTTP of the configuration that this user may run. */
export async function remoteServers(args: ParsedArgs, env: NodeJS.ProcessEnv): Promise<Map<string, RemoteServer>> {
  const location = await commandConfig(args, env);
  const { config, secrets } = await new TrustedSource(location, env).open(askTrust(env));
  const redactor = createRedactor(secrets);
  const values = createSecrets(env, redactor);
  const found = new Map<string, RemoteServer>();
  const settings = parseHostConfig(config, () => {}, true);
  values.configure(settings.secrets.exec);
  for (const [name, { spec }] of settings.mcpServers) {
    if (isStdio(spec) || isAttached(spec)) continue;
    const { auth = authEntry.parse({}), url } = spec;
    const parts = { clock: systemClock, random: systemRandom, env };
    const http = createOAuthHttp({ server: name, url, issuer: auth.issuer, ...parts });
    const headers = async () => {
      const resolved = Object.entries(spec.headers).map(
        async ([header, text]) => [header, await values.resolve(text, `mcpServers.${name}.headers.${header}`)] as const,
      );
      return Object.fromEntries(await Promise.all(resolved));
    };
    const authWithSecrets = () => withSecrets(name, auth, values);
    found.set(name, { name, spec, auth, authWithSecrets, http, redactor, headers });
  }
  return found;
}

export async function remoteServer(args: ParsedArgs, env: NodeJS.ProcessEnv): Promise<RemoteServer> {
  const [name = ''] = args.positionals;
  const all = await remoteServers(args, env);
  const found = all.get(name);
  if (found) return found;
  const near = nearestName(name, [...all.keys()]);
  const names = [...all.keys()].slice(0, 20).join(', ');
  throw new HostError('server_not_found', `the configuration has no server '${name.slice(0, 100)}' with a url`, {
    server: name,
    hint: near === undefined ? `servers with a url: ${names || 'none'}` : `did you mean ${near}?`,
  });
}
