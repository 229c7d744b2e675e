/**
 * Paths of Hostler that affect every sandbox: the homes of servers, and files that no server may see.
 * Not here: paths that one server declares (sandbox-view.ts).
 */
import os from 'node:os';
import path from 'node:path';
import { configFolder, dataFolder, stateFolder, userDataFolder } from '../../../config/folders.js';
import type { Environment } from '../../environment.js';
import { isWithin, traceFuturePath } from './mounts.js';

export interface HostPaths {
  /** Parent folder of the server homes. Undefined: each start gets an empty home that is discarded at its end. */
  readonly homes: string | undefined;
  /** Files and folders of Hostler: keys, sockets, configuration. They need not exist yet. */
  readonly hidden: readonly string[];
  /** Paths of `hidden` that stay hidden while they do not exist: an editor may remove a file before writing it again. */
  readonly hiddenWhileMissing?: readonly string[];
  /** Homes of the user. Shown only if a definition declares them. */
  readonly userHomes: readonly string[];
  /** Program files of Hostler. A server that changed them would run code outside its sandbox. */
  readonly programs: readonly string[];
}

/** The default folders are hidden too: another Hostler of the same user may have its keys and socket there. */
export function hostPaths(
  ambient: Environment,
  stateDir: string | undefined,
  hiddenPaths: readonly string[],
  keepsHomes = true,
): HostPaths {
  const ofUser = [stateFolder(ambient), dataFolder(ambient), userDataFolder(ambient), configFolder(ambient)];
  const hidden = [...new Set([...hiddenPaths, stateDir, ...ofUser])];
  return {
    homes: stateDir === undefined || !keepsHomes ? undefined : path.resolve(stateDir, 'sandbox'),
    hidden: hidden.filter((entry) => entry !== undefined),
    hiddenWhileMissing: hiddenPaths,
    userHomes: [ambient.HOME, accountHome()].filter((home) => home !== undefined && isHome(home)) as string[],
    programs: [process.execPath, process.argv[1]].filter((file) => file !== undefined && file !== '') as string[],
  };
}

/** In a container HOME may be `/`. */
const isHome = (folder: string): boolean => path.isAbsolute(folder) && path.resolve(folder) !== '/';

/** Home in the account database, which may differ from HOME. */
function accountHome(): string | undefined {
  try {
    return os.userInfo().homedir;
  } catch {
    return undefined;
  }
}

/** `HostPaths` with resolved paths, and checks against them. */
export interface ResolvedHostPaths {
  readonly hidden: readonly string[];
  readonly hiddenWhileMissing: readonly string[];
  readonly userHomes: readonly string[];
  /** Paths that no server may write to: hidden paths, links that lead to them, and the program of Hostler. */
  readonly guarded: readonly string[];
  /** Whether the path is hidden, or inside a hidden folder. */
  readonly isHidden: (real: string) => boolean;
  /** Whether the folder of a program may be shown completely. False for a home of a user and for a folder of many programs. */
  readonly mayBeShown: (real: string) => boolean;
}

const sharedFolders = [
  ...['/opt', '/srv', '/var', '/var/lib', '/home', '/tmp', '/var/tmp', '/run', '/mnt', '/media', '/etc'],
];
const sharedInHome = ['.local', '.local/share', '.config', '.cache'];

export async function resolveHostPaths(paths: HostPaths): Promise<ResolvedHostPaths> {
  const traceAll = (files: readonly string[]) => Promise.all(files.map(traceFuturePath));
  const [own, missing, homes, programs] = await Promise.all([
    traceAll(paths.hidden),
    traceAll(paths.hiddenWhileMissing ?? []),
    traceAll(paths.userHomes),
    traceAll(paths.programs),
  ]);
  const hidden = own.map(({ real }) => real);
  const userHomes = homes.map(({ real }) => real);
  const shared = new Set([
    ...sharedFolders,
    ...userHomes.flatMap((home) => sharedInHome.map((name) => path.join(home, name))),
  ]);
  const isHidden = (real: string): boolean => hidden.some((folder) => isWithin(folder, real));
  return {
    hidden,
    hiddenWhileMissing: missing.map(({ real }) => real),
    userHomes,
    guarded: [...own, ...programs].flatMap(({ real, links }) => [real, ...links.map(({ at }) => at)]),
    isHidden,
    mayBeShown: (real) =>
      real !== '/' && !shared.has(real) && !isHidden(real) && !userHomes.some((home) => isWithin(real, home)),
  };
}
