/** `hostler help`: the list of commands, the page of one command, or a topic. */
import path from 'node:path';
import { configFileName, ownConfigFile } from '../config/folders.js';
import { didYouMean } from '../kernel/nearest-name.js';
import { type Command, type CommandTable, jsonOption, usageError } from './command.js';
import { realPath } from './config/find-config.js';
import { EXIT } from './exit-codes.js';
import { helpOf, overview } from './output/help.js';
import { printJson, printLines } from './output/print.js';
import { type Line, span } from './output/styled.js';
import { version } from './version.js';

const topics: Readonly<Record<string, readonly (readonly [string, string])[]>> = {
  states: [
    ['asleep', 'starts with its next call'],
    ['starting', 'its process or connection is being opened'],
    ['ready', 'serves calls'],
    ['suspect', 'has not answered for a while; a check decides'],
    ['restarting', 'failed, and is started again in a moment'],
    ['parked', 'failed too often; tried again later, or by hostler reload'],
    ['ejected', 'failed too often; only hostler reload tries it again'],
    ['needs login', 'its account must log in again'],
    ['stopped', 'stopped by hostler stop, until hostler start'],
    ['disabled', 'out of service, by its entry or by hostler disable'],
    ['refused', 'its entry in the configuration has a mistake'],
  ],
  codes: [
    ['0', 'done'],
    ['1', 'failed: also when the tool failed, or no Hostler is running'],
    ['2', 'wrong usage; nothing was done'],
    ['3', 'refused by policy: a rule, a budget, a changed tool'],
    ['4', 'the server is unavailable: parked, stopped, its breaker open'],
  ],
  arguments: [
    ['name=value', 'converted by the schema of the tool: zip=01234 may stay text'],
    ['name:=json', 'JSON, as written'],
    ['name=@file', 'the text of a file'],
    ["'{...}'", 'the whole object, sent byte for byte'],
    ['-', 'the whole object, from stdin'],
  ],
  environment: [
    ['HOSTLER_DATA_DIR', 'the data directory, like --data-dir'],
    ['XDG_CONFIG_HOME', 'folder of hostler/hostler.json; default ~/.config'],
    ['XDG_DATA_HOME', 'folder of hostler, for data; default ~/.local/share'],
    ['NO_COLOR', 'no colours; FORCE_COLOR=1 also colours a pipe'],
    ['HOSTLER_KEY_FILE', 'the file with the key of hostler worker'],
  ],
};

const topicNames = [...Object.keys(topics), 'clients'];

/** Absolute paths: a desktop application does not have the PATH of a shell, so it may find neither `hostler` nor `node`. */
function clientEntry(): string[] {
  const own = ownConfigFile(process.env) ?? path.resolve(configFileName);
  const args = [realPath(process.argv[1] ?? ''), 'up', '--stdio', '--config', own];
  return [
    'The entry for a client that starts servers itself:',
    '',
    ...JSON.stringify({ mcpServers: { hostler: { command: process.execPath, args } } }, null, 2).split('\n'),
    '',
    'VS Code calls the table servers, Zed context_servers. --config may also name',
    'the file of the client. Over HTTP: hostler up, which prints that entry.',
  ];
}

export const help: Command = {
  name: 'help',
  usage: '[COMMAND | states | codes | arguments | environment | clients] [--json]',
  example: 'help states',
  options: jsonOption,
  positionals: [0, 1],
  async run(args, commands = {}) {
    const [about] = args.positionals;
    if (args.has('json')) {
      const list = Object.entries(commands).map(([name, [summary]]) => ({ name, summary }));
      printJson({ commands: list, topics: topicNames });
    } else printLines(await pageOf(about, commands));
    return EXIT.done;
  },
};

async function pageOf(about: string | undefined, commands: CommandTable): Promise<Line[]> {
  if (about === undefined) return overview(version, commands);
  const entry = Object.hasOwn(commands, about) ? commands[about] : undefined;
  if (entry) return helpOf(await entry[1](), entry[0]);
  if (about === 'clients') return clientEntry();
  const rows = Object.hasOwn(topics, about) ? topics[about] : undefined;
  if (!rows) {
    const near = didYouMean(about, [...topicNames, ...Object.keys(commands)]);
    throw usageError(help, `there is no topic '${about.slice(0, 100)}'`, `${near}topics: ${topicNames.join(', ')}`);
  }
  const width = Math.max(...rows.map(([term]) => term.length));
  return rows.map(([term, text]): Line => ['  ', span('name', term.padEnd(width)), `  ${text}`]);
}
