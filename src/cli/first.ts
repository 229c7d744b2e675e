/**
 * `hostler` alone: what is there, and what to do next.
 * Invariant: without a configuration and a running Hostler nothing is written, started or connected to; files of clients are only
 * read.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { normaliseConfig } from '../config/client-config.js';
import { parseConfigText, readConfigSource } from '../config/config-file.js';
import { configFileName, ownConfigFile } from '../config/folders.js';
import { isOwnCommand } from '../config/own-entry.js';
import { isHostError } from '../kernel/errors.js';
import { parseCommandArgs } from './command.js';
import { clientFiles } from './config/client-files.js';
import { type ConfigLocation, findConfig } from './config/find-config.js';
import { hasRunningHost } from './config/running-hosts.js';
import { EXIT } from './exit-codes.js';
import { counted, printLines, quoted } from './output/print.js';
import { type Line, screenOf, span } from './output/styled.js';
import { table } from './output/table.js';
import { version } from './version.js';

type Environment = NodeJS.ProcessEnv;

const commandChars = 34;

interface Entry {
  readonly command?: unknown;
  readonly args?: unknown;
  readonly url?: unknown;
}

interface ClientServers {
  readonly client: string;
  readonly file: string;
  readonly servers: readonly Entry[];
}

export async function first(env: Environment = process.env, cwd = process.cwd()): Promise<number> {
  const found = configHere(env, cwd);
  const isShown = (found || (await hasRunningHost(env))) && (await statusOf());
  if (!isShown) printLines(found ? withConfig(found) : withoutConfig(env));
  return EXIT.done;
}

function configHere(env: Environment, cwd: string): ConfigLocation | undefined {
  try {
    return findConfig({ env, cwd });
  } catch {
    return undefined;
  }
}

/** True if a Hostler is running: its status is printed, or which ones there are. */
async function statusOf(): Promise<boolean> {
  try {
    const { status } = await import('./status.js');
    await status.run(parseCommandArgs(status, []));
    return true;
  } catch (error) {
    if (!isHostError(error)) throw error;
    const areSeveral = error.details.reason === 'usage';
    if (areSeveral) printLines([title, '', `${error.message}.`, '', `To see one: ${error.hint}.`]);
    return areSeveral;
  }
}

const title: Line = [span('strong', 'hostler'), ` ${version}: the supervised host for MCP servers`];
/** A long command has its meaning on the next line. */
const next = (command: string, meaning: string): Line[] =>
  command.length > commandChars
    ? [['  ', span('name', command)], `      ${meaning}`]
    : [['  ', span('name', command.padEnd(commandChars)), ` ${meaning}`]];

function withConfig({ file }: ConfigLocation): Line[] {
  const servers = serversIn(file);
  const what = servers === undefined ? 'cannot be read' : `has ${counted(servers.length, 'server')}`;
  return [
    title,
    '',
    `${file} ${what}; no Hostler is running for it.`,
    '',
    ...(servers === undefined
      ? next('hostler doctor', 'say what is wrong with it')
      : next('hostler up', 'run its servers')),
    ...next('hostler help', 'list the commands'),
  ];
}

function withoutConfig(env: Environment): Line[] {
  const found = clientFiles(env).flatMap(({ client, file }): ClientServers[] => {
    const servers = serversIn(file);
    return servers === undefined || servers.length === 0 ? [] : [{ client, file, servers }];
  });
  const rows = found.map(({ client, file, servers }) => [
    `  ${client}`,
    counted(servers.length, 'server'),
    shortened(file, env),
  ]);
  const [one] = found;
  return [
    title,
    '',
    ...(one
      ? [summaryOf(found, env), '', ...table(rows, screenOf(process.stdout))]
      : ['There is no hostler.json yet, and no client has MCP servers.']),
    '',
    'Next:',
    ...(one ? next(`hostler up --config ${pasted(one.file, env)}`, `run the servers of ${one.client}`) : []),
    ...next('hostler probe -- COMMAND', 'try one server'),
    ...next('hostler help', 'list the commands'),
    '',
    `Or write ${shortened(ownConfigFile(env) ?? configFileName, env)}: {"mcpServers": {"memory":`,
    '  {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]}}},',
    'and run hostler up. hostler help clients has the entry for a client.',
  ];
}

/** `17 servers in 4 clients: 11 different, 2 whose command does not exist` */
function summaryOf(found: readonly ClientServers[], env: Environment): string {
  const all = found.flatMap(({ servers }) => servers);
  const different = new Map(all.map((entry) => [JSON.stringify([entry.command, entry.args, entry.url]), entry]));
  const missing = [...different.values()].filter(({ command }) => typeof command === 'string' && !exists(command, env));
  const lost = missing.length === 0 ? '' : `, ${missing.length} whose command does not exist`;
  return `${counted(all.length, 'server')} in ${counted(found.length, 'client')}: ${different.size} different${lost}`;
}

function exists(command: string, { PATH = '' }: Environment): boolean {
  if (command.includes('/') || command.includes('$')) return command.includes('$') || existsSync(command);
  return PATH.split(path.delimiter).some((folder) => folder !== '' && existsSync(path.join(folder, command)));
}

const shortened = (file: string, { HOME }: Environment): string =>
  HOME && file.startsWith(`${HOME}/`) ? `~${file.slice(HOME.length)}` : file;

/** As a word for a shell, which replaces `~` only outside of quotes. */
function pasted(file: string, env: Environment): string {
  const short = shortened(file, env);
  return short.startsWith('~/') ? `~/${quoted(short.slice(2))}` : quoted(short);
}

/** The servers of a file, without Hostler itself; undefined if the file does not exist or cannot be read. */
function serversIn(file: string): readonly Entry[] | undefined {
  try {
    const { config } = normaliseConfig(parseConfigText(readConfigSource(file).text, file));
    const { mcpServers } = (config ?? {}) as { mcpServers?: Readonly<Record<string, Entry | null>> };
    return Object.values(mcpServers ?? {}).flatMap((entry) => (isOwnCommand({ ...entry }) ? [] : [entry ?? {}]));
  } catch {
    return undefined;
  }
}
