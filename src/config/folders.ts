/** Folders of the files that outlive Hostler. */
import path from 'node:path';

type Environment = Readonly<Record<string, string | undefined>>;

/** The base directory of the XDG variable, or below HOME; undefined when the account has neither. */
function baseFolder(env: Environment, variable: string, ...belowHome: string[]): string | undefined {
  const base = env[variable];
  if (base && path.isAbsolute(base)) return path.join(base, 'hostler');
  return env.HOME && path.isAbsolute(env.HOME) ? path.join(env.HOME, ...belowHome, 'hostler') : undefined;
}

const namedFolder = ({ HOSTLER_DATA_DIR: named }: Environment): string | undefined =>
  named ? path.resolve(named) : undefined;

/** Where a single probe records its processes. */
export const stateFolder = (env: Environment): string | undefined =>
  namedFolder(env) ?? baseFolder(env, 'XDG_STATE_HOME', '.local', 'state');

/** Where a running Hostler stores its keys, pins and lists, and has its control socket. */
export const dataFolder = (env: Environment): string | undefined =>
  namedFolder(env) ?? baseFolder(env, 'XDG_DATA_HOME', '.local', 'share');

/**
 * As `dataFolder`, for files that may run code or grant access before anything was confirmed: a relative HOSTLER_DATA_DIR is
 * ignored, because the working folder may belong to a stranger.
 */
export function ownDataFolder(env: Environment): string | undefined {
  const { HOSTLER_DATA_DIR: named = '', ...rest } = env;
  return dataFolder(path.isAbsolute(named) ? env : rest);
}

/** Where the configuration is, unless it is in the working folder. */
export const configFolder = (env: Environment): string | undefined => baseFolder(env, 'XDG_CONFIG_HOME', '.config');
