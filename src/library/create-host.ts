/**
 * The `createHost` of the library. Calls with an `idempotencyKey` use a log of calls, which the first such call opens. Servers may use
 * the logins of this user.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { loadLibsql } from '../catalog/store/libsql.js';
import { createHost as createPlainHost, type Host } from '../host/host.js';
import type { HostConfig, HostOptions } from '../host/host-interface.js';
import { type KeyedCalls, throwInDoubt } from '../host/keyed-calls.js';
import type { IdentityPlace } from '../identity/identity-place.js';
import { systemClock } from '../kernel/clock.js';
import { systemRandom } from '../kernel/random.js';
import { createRedactor } from '../kernel/redact.js';

export interface CreateHostOptions extends HostOptions {
  /**
   * Uses the logins of `hostler login`, and requests tokens for servers with `client_credentials`. True: the store of this user.
   * An object names another folder, and the key that seals its store. Default: no store is opened. A provider that `authProvider`
   * returns has priority.
   */
  readonly identity?: boolean | { readonly dir: string; readonly key?: string };
}

export async function createHost(config: HostConfig, options: CreateHostOptions = {}): Promise<Host> {
  const { identity, ...plain } = options;
  const host = await createPlainHost(config, identity ? await withLogins(identity, plain) : plain);
  let opened: Promise<KeyedCalls> | undefined;
  const open = (): Promise<KeyedCalls> => {
    opened ??= openKeyedCalls(options).catch((error) => {
      // The next call tries again.
      opened = undefined;
      throw error;
    });
    return opened;
  };
  const calls: KeyedCalls = {
    knows: async (call) => (opened !== undefined || hasKeys(options.stateDir)) && (await open()).knows(call),
    run: async (call) => (await open().catch(throwInDoubt)).run(call),
    close: async () => (await opened?.catch(() => undefined))?.close(),
  };
  host.useKeyedCalls(calls, 'own');
  return host;
}

/** A log without a file has no keys, so it is not opened. A call whose key is in a shared log then does not depend on it. */
const hasKeys = (stateDir: string | undefined): boolean =>
  stateDir !== undefined && callsFiles.some((name) => existsSync(path.join(stateDir, 'calls', name)));

/** After a failure of the disk, the log renames its file to the second name. */
const callsFiles = ['calls.db', 'calls.db-failed'];

async function withLogins(
  identity: true | { readonly dir: string; readonly key?: string },
  options: HostOptions,
): Promise<HostOptions> {
  const [{ Identity }, { identityPlace }] = await Promise.all([
    import('../identity/identity.js'),
    import('../identity/identity-place.js'),
    loadLibsql(),
  ]);
  const { ambient: env = process.env, authProvider, hiddenPaths = [], redactor = createRedactor(), secrets } = options;
  const { clock = systemClock, random = systemRandom, onProblem = () => {} } = options;
  const { folder, key, error }: IdentityPlace =
    identity === true ? identityPlace(env) : { folder: identity.dir, key: identity.key };
  if (key !== undefined) redactor.know(key);
  // The timers of `tokens` end with the servers of the host.
  const tokens = new Identity({ folder, key, error, clock, random, redactor, secrets, env, onProblem });
  return {
    ...options,
    redactor,
    hiddenPaths: folder === undefined ? hiddenPaths : [...hiddenPaths, folder],
    authProvider: (server) => authProvider?.(server) ?? tokens.providerFor(server),
  };
}

async function openKeyedCalls({
  stateDir,
  clock = systemClock,
  onProblem = () => {},
}: HostOptions): Promise<KeyedCalls> {
  const [{ keyedCalls }, { openSqliteCallLog }] = await Promise.all([
    import('../broker/keyed-calls.js'),
    import('../broker/calls/sqlite/sqlite-call-log.js'),
  ]);
  const folder = stateDir === undefined ? undefined : path.join(stateDir, 'calls');
  return keyedCalls(await openSqliteCallLog({ folder, clock, onProblem }), clock, true, onProblem);
}
