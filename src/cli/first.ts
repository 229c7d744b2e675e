/**
 * `hostler` without a command: shows what is configured and what runs, and the next steps.
 * Invariant: without a configuration and a running Hostler nothing is written, started or connected to; files of clients are only
 * read.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { normaliseConfig } from '../config/client-config.js';
import { parseConfigText, readConfigSource } from '../config/config-file.js';
import { configFileName, ownConfigFile } from '../config/folders.js';
import { isOwnCommand } from '../config/own-entry.js';
import { hasPlainSecret } from '../config/plain-secrets.js';
import { isHostError } from '../kernel/errors.js';
import { quoted } from '../kernel/shell-word.js';
import { parseCommandArgs } from './command.js';
import { clientFiles } from './config/client-files.js';
import { type ConfigLocation, findConfig, realPath } from './config/find-config.js';
import { type Running, runningHosts } from './config/running-hosts.js';
import { EXIT } from './exit-codes.js';
import { counted, printJson, printLines } from './output/print.js';
import { type Line, screenOf, span } from './output/styled.js';
import { table } from './output/table.js';
import { version } from './version.js';

type Environment = NodeJS.ProcessEnv;

const commandChars = 34;
const hostsShown = 5;

interface Entry {
  readonly command?: unknown;
  readonly args?: unknown;
  readonly url?: unknown;
}

interface ClientServers {
  readonly client: string;
  readonly file: string;
  /** Undefined: the file cannot be read. */
  readonly servers: readonly Entry[] | undefined;
}

interface NextStep {
  readonly command: string;
  readonly meaning: string;
}

export async function first(isJson: boolean, env: Environment = process.env, cwd = process.cwd()): Promise<number> {
  const found = configHere(env, cwd);
  if (isJson) {
    printJson(await factsOf(found, env));
    return EXIT.done;
  }
  const isShown = (found || (await runningHosts(env)).length > 0) && (await statusOf(env));
  if (!isShown) printLines(found ? withConfig(found) : withoutConfig(env));
  return EXIT.done;
}

async function factsOf(found: ConfigLocation | undefined, env: Environment) {
  const count = (servers: readonly Entry[] | undefined) => servers?.length ?? null;
  const clients = serversOfClients(env);
  const own = found && serversIn(found.file);
  const running = await runningHosts(env);
  const here = running.filter(({ config }) => !found || (config && realPath(config) === realPath(found.file)));
  return {
    version,
    running: running.map(({ pid = null, url = null, config = null, dataDir }) => ({ pid, url, config, dataDir })),
    config: found ? { file: found.file, servers: count(own) } : null,
    clients: clients.map(({ client, file, servers }) => ({ client, file, servers: count(servers) })),
    next: here.length > 0 ? stepsOf(here, env) : found ? stepsWith(own) : stepsWithout(clients, env),
  };
}

function configHere(env: Environment, cwd: string): ConfigLocation | undefined {
  try {
    return findConfig({ env, cwd });
  } catch {
    return undefined;
  }
}

/** Prints the status of the running Hostler, or a list if several run. Returns false if none runs. */
async function statusOf(env: Environment): Promise<boolean> {
  try {
    const { status } = await import('./status.js');
    await status.run(parseCommandArgs(status, []));
    return true;
  } catch (error) {
    if (!isHostError(error)) throw error;
    const areSeveral = error.details.reason === 'usage';
    if (areSeveral) printLines(severalLines(await runningHosts(env), env));
    return areSeveral;
  }
}

const title: Line = [span('strong', 'hostler'), ` ${version}: the supervised host for MCP servers`];

/** A long command has its meaning on the next line. */
const stepLines = ({ command, meaning }: NextStep): Line[] =>
  command.length > commandChars
    ? [['  ', span('name', command)], `      ${meaning}`]
    : [['  ', span('name', command.padEnd(commandChars)), `  ${meaning}`]];

const stepsOf = (running: readonly Running[], env: Environment): NextStep[] =>
  running.slice(0, hostsShown).map(({ config, dataDir }) => ({
    command: `hostler status ${config === undefined ? `--data-dir ${pasted(dataDir, env)}` : `--config ${pasted(config, env)}`}`,
    meaning: 'show its servers',
  }));

function severalLines(running: readonly Running[], env: Environment): Line[] {
  const rows = running
    .slice(0, hostsShown)
    .map(({ config, dataDir, url = 'over stdio' }) => [`  ${shortened(config ?? dataDir, env)}`, url]);
  const more = running.length - rows.length;
  return [
    title,
    '',
    `${running.length} Hostlers are running:`,
    '',
    ...table(rows, screenOf(process.stdout)),
    ...(more > 0 ? [`  and ${more} more`] : []),
    '',
    'Next:',
    ...[...stepsOf(running, env), help].flatMap(stepLines),
  ];
}

const help: NextStep = { command: 'hostler help', meaning: 'list the commands' };

const stepsWith = (servers: readonly Entry[] | undefined): NextStep[] => [
  servers === undefined
    ? { command: 'hostler doctor', meaning: 'say what is wrong with it' }
    : { command: 'hostler up', meaning: 'run its servers' },
  help,
];

function withConfig({ file }: ConfigLocation): Line[] {
  const servers = serversIn(file);
  const what = servers === undefined ? 'cannot be read' : `has ${counted(servers.length, 'server')}`;
  return [title, '', `${file} ${what}; no Hostler is running for it.`, '', ...stepsWith(servers).flatMap(stepLines)];
}

function stepsWithout(clients: readonly ClientServers[], env: Environment): NextStep[] {
  const usable = clients.find(({ servers }) => servers !== undefined);
  const broken = clients.find(({ servers }) => servers === undefined);
  const config = (file: string): string => `--config ${pasted(file, env)}`;
  return [
    ...(usable
      ? [{ command: `hostler up ${config(usable.file)}`, meaning: `run the servers of ${usable.client}` }]
      : []),
    ...(broken
      ? [
          {
            command: `hostler doctor ${config(broken.file)}`,
            meaning: `say what is wrong with the file of ${broken.client}`,
          },
        ]
      : []),
    { command: 'hostler probe -- COMMAND', meaning: 'try one server' },
    help,
  ];
}

function withoutConfig(env: Environment): Line[] {
  const clients = serversOfClients(env);
  const rows = clients.map(({ client, file, servers }) => [
    `  ${client}`,
    servers === undefined ? span('bad', 'cannot be read') : counted(servers.length, 'server'),
    shortened(file, env),
  ]);
  return [
    title,
    '',
    summaryOf(clients, env),
    ...(rows.length === 0 ? [] : ['', ...table(rows, screenOf(process.stdout))]),
    '',
    'Next:',
    ...stepsWithout(clients, env).flatMap(stepLines),
    '',
    `Or write ${shortened(ownConfigFile(env) ?? configFileName, env)}: {"mcpServers": {"memory":`,
    '  {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]}}},',
    'and run hostler up. hostler help clients has the entry for a client.',
  ];
}

/** Clients that have servers, and clients whose file cannot be read. */
const serversOfClients = (env: Environment): ClientServers[] =>
  clientFiles(env).flatMap(({ client, file }) => {
    const servers = serversIn(file);
    return servers?.length === 0 || (servers === undefined && !existsSync(file)) ? [] : [{ client, file, servers }];
  });

/** `17 servers in 4 clients, 11 of them different, 3 with secrets in plain text, 2 whose command does not exist` */
function summaryOf(clients: readonly ClientServers[], env: Environment): string {
  const found = clients.flatMap(({ servers }) => (servers ? [servers] : []));
  const all = found.flat();
  if (all.length === 0) return 'There is no hostler.json yet, and no client has MCP servers.';
  const different = new Map(all.map((entry) => [JSON.stringify([entry.command, entry.args, entry.url]), entry]));
  const missing = [...different.values()].filter(({ command }) => typeof command === 'string' && !exists(command, env));
  const plain = all.filter((entry) => hasPlainSecret({ ...entry })).length;
  const secrets = plain === 0 ? '' : `, ${plain} with secrets in plain text`;
  const lost = missing.length === 0 ? '' : `, ${missing.length} whose command does not exist`;
  const unequal = different.size === all.length ? '' : `, ${different.size} of them different`;
  return `${counted(all.length, 'server')} in ${counted(found.length, 'client')}${unequal}${secrets}${lost}`;
}

function exists(command: string, { PATH = '' }: Environment): boolean {
  if (command.includes('/') || command.includes('$')) return command.includes('$') || existsSync(command);
  return PATH.split(path.delimiter).some((folder) => folder !== '' && existsSync(path.join(folder, command)));
}

const shortened = (file: string, { HOME }: Environment): string =>
  HOME && file.startsWith(`${HOME}/`) ? `~${file.slice(HOME.length)}` : file;

/** Returns the path as one word for a shell. The shell replaces `~` only outside of quotes. */
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
