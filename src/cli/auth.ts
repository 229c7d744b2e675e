/** `hostler auth`: lists the logins of this user, or shows that of one server. Reads the store; no running Hostler is needed. */
import { type GrantRow, shownFacts, timeOf } from '../identity/grant-row.js';
import { identityPlace, keySourceOf, keyTexts } from '../identity/identity-place.js';
import { HostError } from '../kernel/errors.js';
import { type Command, jsonOption } from './command.js';
import { openUserStore, type RemoteServer, remoteServer, remoteServers } from './config/identity-config.js';
import { EXIT } from './exit-codes.js';
import { configOption } from './login.js';
import { printJson, printLines } from './output/print.js';
import { screenOf, span } from './output/styled.js';
import { table } from './output/table.js';

export const auth: Command = {
  name: 'auth',
  usage: '[SERVER] [--json]',
  example: 'auth',
  options: { ...jsonOption, ...configOption },
  positionals: [0, 1],
  async run(args) {
    const store = await openUserStore(process.env, false);
    const one = args.positionals.length > 0 ? await remoteServer(args, process.env) : undefined;
    const servers = one ? [one] : await configured(args);
    const rows = store?.grants() ?? [];
    const used = new Map(servers.map(({ name, spec, auth: own }) => [name, store?.findGrant(spec.url, own)]));
    const place = identityPlace(process.env);
    const shown = one ? rows.filter(({ id }) => id === used.get(one.name)?.id) : rows;
    const logins = shown.map((row) => entryOf(row, namesOf(row, used), store?.urlsOf(row.id) ?? []));
    const missing = servers
      .filter(({ name, auth: { grant } }) => grant === 'code' && !used.get(name))
      .map(({ name }) => name);
    const keySource = keySourceOf(place);
    if (args.has('json')) printJson({ store: place.folder, key: keySource, logins, withoutLogin: missing });
    else print(logins, missing, keySource);
    return one && logins.length === 0 ? EXIT.failed : EXIT.done;
  },
};

/** Returns no servers if there is no configuration: the logins are listed all the same. */
async function configured(args: Parameters<Command['run']>[0]): Promise<RemoteServer[]> {
  try {
    return [...(await remoteServers(args, process.env)).values()];
  } catch (error) {
    if (args.text('config') !== undefined || !(error instanceof HostError)) throw error;
    return [];
  }
}

const namesOf = (row: GrantRow, used: ReadonlyMap<string, GrantRow | undefined>): string[] =>
  [...used].filter(([, found]) => found?.id === row.id).map(([name]) => name);

function entryOf(row: GrantRow, servers: readonly string[], urls: readonly string[]) {
  const { account, state, reason, wanted, facts } = row;
  return {
    ...{ servers, urls, account, state, reason, wanted, grant: facts.grantType, ...shownFacts(row) },
    ...{ loginAt: timeOf(facts.loginMs), refreshedAt: timeOf(facts.refreshedMs) },
    renewable: row.refreshToken !== undefined || facts.grantType === 'client_credentials',
  };
}

type Entry = ReturnType<typeof entryOf>;

function print(logins: readonly Entry[], missing: readonly string[], keySource: 'file' | 'operator'): void {
  const state = (entry: Entry) =>
    entry.state === 'dead'
      ? span('bad', `ended (${entry.reason ?? 'unknown'})`)
      : entry.wanted.length > 0
        ? span('busy', 'needs more scopes')
        : span('good', 'granted');
  const rows = logins.map((entry) => [
    span('name', (entry.servers.length > 0 ? entry.servers : entry.urls).join(', ')),
    state(entry),
    [entry.identity, entry.account].filter(Boolean).join(' / ') || '-',
    entry.issuer,
    entry.renewable ? 'renewed by itself' : (entry.expiresAt ?? 'unknown'),
  ]);
  const listed =
    rows.length === 0
      ? []
      : table([['SERVER', 'STATE', 'ACCOUNT', 'ISSUER', 'UNTIL'], ...rows], screenOf(process.stdout));
  const needed = missing.map((name) => `${name}: no login; if the server asks for one, run: hostler login ${name}`);
  const isUnused = logins.some(({ servers }) => servers.length === 0);
  const unused =
    'no server of this configuration uses a login that is listed with a URL; hostler logout URL removes it';
  printLines([
    ...(listed.length === 0 ? ['no logins'] : listed),
    ...(isUnused ? [unused] : []),
    ...needed,
    `sealed with ${keyTexts[keySource]}`,
  ]);
}
