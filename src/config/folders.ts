/**
 * Where Hostler keeps what must outlive it.
 */
import path from 'node:path';

type Environment = Readonly<Record<string, string | undefined>>;

/** The folder in which a single probe notes its processes; undefined when the account has no home. */
export function stateFolder(env: Environment): string | undefined {
  if (env.HOSTLER_DATA_DIR) return path.resolve(env.HOSTLER_DATA_DIR);
  if (env.XDG_STATE_HOME && path.isAbsolute(env.XDG_STATE_HOME)) return path.join(env.XDG_STATE_HOME, 'hostler');
  return env.HOME && path.isAbsolute(env.HOME) ? path.join(env.HOME, '.local', 'state', 'hostler') : undefined;
}

/** The folder in which a running Hostler keeps its keys, pins and lists, and is spoken to. */
export function dataFolder(env: Environment): string | undefined {
  if (env.HOSTLER_DATA_DIR) return path.resolve(env.HOSTLER_DATA_DIR);
  if (env.XDG_DATA_HOME && path.isAbsolute(env.XDG_DATA_HOME)) return path.join(env.XDG_DATA_HOME, 'hostler');
  return env.HOME && path.isAbsolute(env.HOME) ? path.join(env.HOME, '.local', 'share', 'hostler') : undefined;
}

/**
 * The same for what may run code or let somebody in before anything was confirmed: never below the working folder, where
 * a relative variable leads, because that folder may be a stranger's.
 */
export function ownDataFolder(env: Environment): string | undefined {
  const { HOSTLER_DATA_DIR: named = '', ...rest } = env;
  return dataFolder(path.isAbsolute(named) ? env : rest);
}

/** The folder of its configuration, beside the one in the working folder. */
export function configFolder(env: Environment): string | undefined {
  if (env.XDG_CONFIG_HOME && path.isAbsolute(env.XDG_CONFIG_HOME)) return path.join(env.XDG_CONFIG_HOME, 'hostler');
  return env.HOME && path.isAbsolute(env.HOME) ? path.join(env.HOME, '.config', 'hostler') : undefined;
}
