/** `hostler help`: the list of commands, the page of one command, or a topic. */
import { didYouMean } from '../kernel/nearest-name.js';
import { type Command, type CommandTable, jsonOption, usageError } from './command.js';
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
    ['name=value', 'read by the schema of the tool: zip=01234 stays text'],
    ['name:=json', 'JSON, as written'],
    ['name=@file', 'the text of a file'],
    ["'{...}'", 'the whole object, sent byte for byte'],
    ['-', 'the whole object, from stdin'],
  ],
  environment: [
    ['HOSTLER_DATA_DIR', 'the data directory, like --data-dir'],
    ['XDG_CONFIG_HOME', 'folder of hostler/hostler.json, ~/.config'],
    ['XDG_DATA_HOME', 'folder of hostler, for data, ~/.local/share'],
    ['NO_COLOR', 'no colours; FORCE_COLOR=1 also colours a pipe'],
    ['HOSTLER_KEY_FILE', 'the key of hostler worker'],
  ],
};

export const help: Command = {
  name: 'help',
  usage: '[COMMAND | states | codes | arguments | environment] [--json]',
  example: 'help states',
  options: jsonOption,
  positionals: [0, 1],
  async run(args, commands = {}) {
    const [about] = args.positionals;
    if (args.has('json')) {
      const list = Object.entries(commands).map(([name, [summary]]) => ({ name, summary }));
      printJson({ commands: list, topics: Object.keys(topics) });
    } else printLines(await pageOf(about, commands));
    return EXIT.done;
  },
};

async function pageOf(about: string | undefined, commands: CommandTable): Promise<Line[]> {
  if (about === undefined) return overview(version, commands);
  const entry = Object.hasOwn(commands, about) ? commands[about] : undefined;
  if (entry) return helpOf(await entry[1](), entry[0]);
  const rows = Object.hasOwn(topics, about) ? topics[about] : undefined;
  if (!rows) {
    const near = didYouMean(about, [...Object.keys(topics), ...Object.keys(commands)]);
    throw usageError(
      help,
      `there is no topic '${about.slice(0, 100)}'`,
      `${near}topics: ${Object.keys(topics).join(', ')}`,
    );
  }
  const width = Math.max(...rows.map(([term]) => term.length));
  return rows.map(([term, text]): Line => ['  ', span('name', term.padEnd(width)), `  ${text}`]);
}
