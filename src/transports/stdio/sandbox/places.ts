/**
 * What a sandbox must know about the Hostler it belongs to: where private homes are kept, and what no server may see.
 * Not here: what one server declares (view.ts).
 */
import os from 'node:os';
import path from 'node:path';
import { configFolder, dataFolder, stateFolder } from '../../../config/folders.js';
import type { Environment } from '../../environment.js';
import { isWithin, traceFuturePath } from './trace-path.js';

export interface SandboxPlaces {
  /** Below it each server has its home. Undefined: homes are empty at each start and discarded at its end. */
  readonly homes: string | undefined;
  /** Files and folders of Hostler itself: keys, sockets, configuration. They may not exist yet. */
  readonly hidden: readonly string[];
  /** Those of `hidden` that are hidden also while they do not exist: an editor removes a file before it writes it anew. */
  readonly named?: readonly string[];
  /** The user's own. Shown only where a definition declares it. */
  readonly userHomes: readonly string[];
  /** What Hostler is started from: a server that changed it would run outside of its sandbox. */
  readonly programs: readonly string[];
}

interface PlacesOptions {
  readonly ambient: Environment;
  readonly stateDir: string | undefined;
  readonly hiddenPaths: readonly string[];
  readonly keepsHomes: boolean;
}

/** The default folders are hidden as well: another Hostler of the same user may have its keys and socket there. */
export function sandboxPlaces({ ambient, stateDir, hiddenPaths, keepsHomes }: PlacesOptions): SandboxPlaces {
  const hidden = [...hiddenPaths, stateDir, stateFolder(ambient), dataFolder(ambient), configFolder(ambient)];
  return {
    homes: stateDir === undefined || !keepsHomes ? undefined : path.resolve(stateDir, 'sandbox'),
    hidden: hidden.filter((entry) => entry !== undefined),
    named: hiddenPaths,
    userHomes: [ambient.HOME, accountHome()].filter((home) => home !== undefined && isHome(home)) as string[],
    programs: [process.execPath, process.argv[1]].filter((file) => file !== undefined && file !== '') as string[],
  };
}

/** In a container `/` may be given as one. */
const isHome = (folder: string): boolean => path.isAbsolute(folder) && path.resolve(folder) !== '/';

/** What the account database says, whatever the variable HOME says. */
function accountHome(): string | undefined {
  try {
    return os.userInfo().homedir;
  } catch {
    return undefined;
  }
}

/** The same with every path real, and the questions that are asked of it. */
export interface RealPlaces {
  readonly hidden: readonly string[];
  readonly named: readonly string[];
  readonly userHomes: readonly string[];
  /** What no server may write to: hidden paths, links that lead to them, and Hostler's own program. */
  readonly guarded: readonly string[];
  /** Whether the path is one of Hostler's own, or lies in one. */
  readonly isHidden: (real: string) => boolean;
  /** Whether a folder may be shown as a whole because a program lies in it: no user's home, and no folder of many programs. */
  readonly mayBeShown: (real: string) => boolean;
}

const sharedFolders = [
  '/opt',
  '/srv',
  '/var',
  '/var/lib',
  '/home',
  '/tmp',
  '/var/tmp',
  '/run',
  '/mnt',
  '/media',
  '/etc',
];
const sharedInHome = ['.local', '.local/share', '.config', '.cache'];

export async function realPlaces(places: SandboxPlaces): Promise<RealPlaces> {
  const traceAll = (files: readonly string[]) => Promise.all(files.map(traceFuturePath));
  const [own, named, homes, programs] = await Promise.all([
    traceAll(places.hidden),
    traceAll(places.named ?? []),
    traceAll(places.userHomes),
    traceAll(places.programs),
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
    named: named.map(({ real }) => real),
    userHomes,
    guarded: [...own, ...programs].flatMap(({ real, links }) => [real, ...links.map(({ at }) => at)]),
    isHidden,
    mayBeShown: (real) =>
      real !== '/' && !shared.has(real) && !isHidden(real) && !userHomes.some((home) => isWithin(real, home)),
  };
}
