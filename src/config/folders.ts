/**
 * Where Hostler keeps what must outlive it.
 */
import path from 'node:path';

type Environment = Readonly<Record<string, string | undefined>>;

/** The folder for state that is not configuration; undefined when the account has no home. */
export function stateFolder(env: Environment): string | undefined {
  if (env.HOSTLER_DATA_DIR) return path.resolve(env.HOSTLER_DATA_DIR);
  if (env.XDG_STATE_HOME && path.isAbsolute(env.XDG_STATE_HOME)) return path.join(env.XDG_STATE_HOME, 'hostler');
  return env.HOME && path.isAbsolute(env.HOME) ? path.join(env.HOME, '.local', 'state', 'hostler') : undefined;
}
