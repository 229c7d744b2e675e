/** Default folders of configuration, data and state. */
import path from 'node:path';

export type Environment = Readonly<Record<string, string | undefined>>;

/** Folder below the XDG variable, else below HOME; undefined if neither is an absolute path. */
function baseFolder(env: Environment, variable: string, ...belowHome: string[]): string | undefined {
  const base = env[variable];
  if (base && path.isAbsolute(base)) return path.join(base, 'hostler');
  return env.HOME && path.isAbsolute(env.HOME) ? path.join(env.HOME, ...belowHome, 'hostler') : undefined;
}

const namedFolder = ({ HOSTLER_DATA_DIR: named }: Environment): string | undefined =>
  named ? path.resolve(named) : undefined;

/** Folder in which `hostler probe` records its processes. */
export const stateFolder = (env: Environment): string | undefined =>
  namedFolder(env) ?? baseFolder(env, 'XDG_STATE_HOME', '.local', 'state');

/** Folder of the keys, pins, lists and control socket of a running Hostler. */
export const dataFolder = (env: Environment): string | undefined => namedFolder(env) ?? userDataFolder(env);

/** Data folder of the user, which HOSTLER_DATA_DIR does not change. */
export const userDataFolder = (env: Environment): string | undefined =>
  baseFolder(env, 'XDG_DATA_HOME', '.local', 'share');

/**
 * Like `dataFolder`, for files that run code or grant access before any confirmation. A relative HOSTLER_DATA_DIR is ignored,
 * because the working folder may be untrusted.
 */
export function ownDataFolder(env: Environment): string | undefined {
  const { HOSTLER_DATA_DIR: named = '', ...rest } = env;
  return dataFolder(path.isAbsolute(named) ? env : rest);
}

/** Folder for files that may be removed at any time. */
export const cacheFolder = (env: Environment): string | undefined => {
  const { HOSTLER_DATA_DIR: named = '' } = env;
  return path.isAbsolute(named) ? path.join(named, 'cache') : baseFolder(env, 'XDG_CACHE_HOME', '.cache');
};

export const configFileName = 'hostler.json';

/** The file of a client also contains the client's history and settings, and grows. */
export const configBytesMax = 32 * 1024 * 1024;

/** The user's own configuration file. */
export const ownConfigFile = (env: Environment): string | undefined => {
  const folder = configFolder(env);
  return folder === undefined ? undefined : path.join(folder, configFileName);
};

/** Folder of the configuration if the working folder has none. */
export const configFolder = (env: Environment): string | undefined => baseFolder(env, 'XDG_CONFIG_HOME', '.config');

/** The log of calls of workers. */
export const callsFolder = (dataDir: string): string => path.join(dataDir, 'broker');
