/**
 * Finds the Hostlers of this user that run now, and the one that a command means. Each has a file in `running/` of the user's data
 * folder. The file contains the path of its data directory.
 * Invariants: a host counts as running only if its control socket answers, because a killed host leaves its file. At most
 * `entriesMax` files are read.
 */
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { userDataFolder } from '../../config/folders.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { makeFolders } from '../../kernel/make-folders.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import type { ParsedArgs } from '../command.js';
import { fetchRunningFacts } from '../control/control-client.js';
import { controlPath, otherConfig, type RunningFacts } from '../control/control-protocol.js';
import { printLines } from '../output/print.js';
import { dataDirOf, givenDataDir, shortHash } from './data-dir.js';
import { type ConfigLocation, findConfig, realPath } from './find-config.js';

type Environment = NodeJS.ProcessEnv;
export type Running = Partial<RunningFacts> & { readonly dataDir: string };

const entriesMax = 1_000;
const pathBytesMax = 4_096;
const shownMax = 20;

const folderOf = (env: Environment): string | undefined => {
  const base = userDataFolder(env);
  return base === undefined ? undefined : path.join(base, 'running');
};

/** Writes the entry of a host, and returns a function that removes it. Without an entry, commands need `--data-dir`. */
export function registerHost(dataDir: string, env: Environment): () => void {
  const folder = folderOf(env);
  if (folder === undefined) return () => {};
  const file = path.join(folder, shortHash(dataDir));
  try {
    makeFolders(folder);
    writeFileSync(file, `${dataDir}\n`, { mode: 0o600 });
  } catch {
    // The user's data folder is not writable.
  }
  return () => rmSync(file, { force: true });
}

export async function runningHosts(env: Environment): Promise<readonly Running[]> {
  const folder = folderOf(env);
  const found = await Promise.all((folder === undefined ? [] : entriesOf(folder)).map(answering));
  return found.filter((each) => each !== undefined).sort((one, other) => (one.dataDir < other.dataDir ? -1 : 1));
}

function entriesOf(folder: string): string[] {
  try {
    return readdirSync(folder)
      .slice(0, entriesMax)
      .map((name) => path.join(folder, name));
  } catch {
    return [];
  }
}

/** Returns the facts of a host that answers. Removes any other entry: its host was killed, or its folder now belongs to another user. */
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

/** What a command does if no Hostler runs the configuration of this folder, but another Hostler is running. */
export type OtherHost = 'show' | 'refuse' | 'ignore';

/**
 * Returns the data directory that a command means, by the first rule that applies:
 * 1. The directory of `--data-dir`.
 * 2. The directory of the Hostler that runs with the file of `--config`. Without `--config`, the file is the configuration of this
 *    folder or of the user.
 * 3. Without `--config`, the directory of the only Hostler that runs.
 * 4. The default directory of the configuration.
 */
export async function hostDataDir(
  args: ParsedArgs,
  other: OtherHost,
  env: Environment = process.env,
  cwd = process.cwd(),
): Promise<string> {
  const given = givenDataDir(args, env);
  const named = args.text('config');
  const file = named === undefined ? configHere(env, cwd) : path.resolve(cwd, named);
  if (given !== undefined) {
    const conflict = named && file && otherConfig(given, (await fetchRunningFacts(controlPath(given))) ?? {}, file);
    if (conflict) throw conflict;
    return given;
  }
  const own = dataDirOf(file, env);
  if (file !== undefined && (await fetchRunningFacts(controlPath(own)))) return own;
  const running = await runningHosts(env);
  // A Hostler with this configuration may have been started with --data-dir.
  const same = running.filter(({ config }) => config !== undefined && file !== undefined && isSameFile(config, file));
  const [first, ...others] = same.length > 0 || named !== undefined ? same : running;
  if (first === undefined) return own;
  const isOther = same.length === 0 && file !== undefined && isSameFile(path.dirname(file), cwd);
  if (isOther && other === 'ignore') return own;
  if (isOther && other === 'refuse') throw notThisOne(file, running);
  if (others.length > 0) throw several([first, ...others]);
  if (isOther) printLines([`hostler: ${otherText(file, first)}`], process.stderr);
  return first.dataDir;
}

/** Finds the configuration that a command reads. If there is none, the error names the configuration of the only running Hostler. */
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

const isSameFile = (one: string, other: string): boolean => realPath(one) === realPath(other);

function configHere(env: Environment, cwd: string): string | undefined {
  try {
    return path.resolve(cwd, findConfig({ env, cwd }).file);
  } catch {
    return undefined;
  }
}

const otherText = (file: string, { config = 'unknown' }: Running): string =>
  neutraliseLine(`no Hostler is running for ${file}; this is the Hostler of ${config}`, 2 * pathBytesMax);

const listOf = (running: readonly Running[]): string => {
  const shown = running.slice(0, shownMax).map(({ config = 'unknown', dataDir }) => `${config} (${dataDir})`);
  const more = running.length > shownMax ? ` and ${running.length - shownMax} more` : '';
  return neutraliseLine(`${shown.join(', ')}${more}`, shownMax * 200);
};

const notThisOne = (file: string, running: readonly Running[]): HostError =>
  new HostError('invalid_spec', `no Hostler is running for ${file}; running: ${listOf(running)}`, {
    reason: 'usage',
    hint: 'with --config or --data-dir, name the Hostler to change; or start one for this configuration: hostler up',
  });

const several = (running: readonly Running[]): HostError =>
  new HostError('invalid_spec', `${running.length} Hostlers are running: ${listOf(running)}`, {
    reason: 'usage',
    hint: 'choose one with --config or --data-dir, or run the command in the folder of its hostler.json',
  });
