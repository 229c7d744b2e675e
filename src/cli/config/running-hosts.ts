/**
 * The Hostlers of this user that run now, and the one that a command means. Each has a file in `running/` of the user's data
 * folder, which holds the path of its data directory.
 * Invariants: a file proves nothing; a host runs if its control socket answers. At most `entriesMax` files are read.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { userDataFolder } from '../../config/folders.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import type { ParsedArgs } from '../command.js';
import { fetchRunningFacts } from '../control/control-client.js';
import { controlPath, type RunningFacts } from '../control/control-protocol.js';
import { dataDirOf, givenDataDir, shortHash } from './data-dir.js';
import { type ConfigLocation, findConfig } from './find-config.js';

type Environment = NodeJS.ProcessEnv;
type Running = Partial<RunningFacts> & { readonly dataDir: string };

const entriesMax = 1_000;
const pathBytesMax = 4_096;
const shownMax = 20;

const folderOf = (env: Environment): string | undefined => {
  const base = userDataFolder(env);
  return base === undefined ? undefined : path.join(base, 'running');
};

/** Returns the function that removes the entry. Without an entry, commands need `--data-dir`. */
export function registerHost(dataDir: string, env: Environment): () => void {
  const folder = folderOf(env);
  if (folder === undefined) return () => {};
  const file = path.join(folder, shortHash(dataDir));
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    writeFileSync(file, `${dataDir}\n`, { mode: 0o600 });
  } catch {
    // The user's data folder is not writable.
  }
  return () => rmSync(file, { force: true });
}

async function runningHosts(env: Environment): Promise<readonly Running[]> {
  const folder = folderOf(env);
  const found = await Promise.all((folder === undefined ? [] : entriesOf(folder)).map(answering));
  return found.filter((each) => each !== undefined).sort((one, other) => (one.dataDir < other.dataDir ? -1 : 1));
}

export const hasRunningHost = async (env: Environment): Promise<boolean> => (await runningHosts(env)).length > 0;

function entriesOf(folder: string): string[] {
  try {
    return readdirSync(folder)
      .slice(0, entriesMax)
      .map((name) => path.join(folder, name));
  } catch {
    return [];
  }
}

/** Removes the entry of a host that was killed, also if another user has a folder in its place now. */
async function answering(file: string): Promise<Running | undefined> {
  try {
    const dataDir = readFileSync(file, 'utf8').slice(0, pathBytesMax).trim();
    if (!path.isAbsolute(dataDir)) return undefined;
    const facts = await fetchRunningFacts(controlPath(dataDir));
    if (facts) return { ...facts, dataDir };
    rmSync(file, { force: true });
  } catch {
    // The entry was removed meanwhile, or the path is too long for a socket.
  }
  return undefined;
}

/**
 * The data directory that a command means: the named one, else that of the configuration which `hostler up` would use here if it
 * runs, else that of the only Hostler that runs.
 */
export async function hostDataDir(
  args: ParsedArgs,
  env: Environment = process.env,
  cwd = process.cwd(),
): Promise<string> {
  const given = givenDataDir(args, env);
  if (given !== undefined) return given;
  const own = dataDirHere(env, cwd);
  if (own !== undefined && (await fetchRunningFacts(controlPath(own)))) return own;
  const [first, ...others] = await runningHosts(env);
  if (first === undefined) return own ?? dataDirOf(undefined, env);
  if (others.length === 0) return first.dataDir;
  throw several([first, ...others]);
}

/** The configuration that a command reads. If there is none here, the error names that of the only Hostler that runs. */
export async function commandConfig(
  args: ParsedArgs,
  env: Environment = process.env,
  cwd = process.cwd(),
): Promise<ConfigLocation> {
  try {
    return findConfig({ given: args.text('config'), env, cwd });
  } catch (error) {
    const [only, ...others] = await runningHosts(env);
    if (!isHostError(error) || only?.config === undefined || others.length > 0) throw error;
    const hint = `name the file with --config; the Hostler that is running uses ${neutraliseLine(only.config, pathBytesMax)}`;
    throw error.with({ hint });
  }
}

function dataDirHere(env: Environment, cwd: string): string | undefined {
  try {
    return dataDirOf(path.resolve(cwd, findConfig({ env, cwd }).file), env);
  } catch {
    return undefined;
  }
}

function several(running: readonly Running[]): HostError {
  const shown = running.slice(0, shownMax).map(({ config = 'unknown', dataDir }) => `${config} (${dataDir})`);
  const more = running.length > shownMax ? ` and ${running.length - shownMax} more` : '';
  const list = neutraliseLine(`${shown.join(', ')}${more}`, shownMax * 200);
  return new HostError('invalid_spec', `${running.length} Hostlers are running: ${list}`, {
    reason: 'usage',
    hint: 'choose one with --data-dir, or run the command in the folder of its configuration',
  });
}
