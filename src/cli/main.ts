#!/usr/bin/env node
/** Entry point: runs the command that argv names, and sets the exit code. */
import { stripVTControlCharacters } from 'node:util';
import { HostError, isHostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { nearestName } from '../kernel/nearest-name.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { closeInheritedDescriptors } from '../transports/stdio/inherited-descriptors.js';
import { helpOf, parseCommandArgs } from './command.js';
import { commands, isCommand } from './commands.js';
import { EXIT, exitCodeOf } from './exit-codes.js';
import { version } from './version.js';

const print = (text: string) => console.log(process.stdout.isTTY ? text : stripVTControlCharacters(text));

/** As PID 1, `up` runs below a reaper, because Node does not reap orphans of servers. */
async function start(argv: string[]): Promise<number> {
  const isInit = process.pid === 1 && argv[0] === 'up';
  const code = isInit ? await (await import('./process/subreaper.js')).runBelowReaper() : undefined;
  return code ?? run(argv);
}

async function run(argv: string[]): Promise<number> {
  const [name, ...rest] = argv;
  const beforeCommand = argv.slice(0, argv.includes('--') ? argv.indexOf('--') : argv.length);
  const wantsHelp = beforeCommand.includes('--help') || beforeCommand.includes('-h');
  if (name === '--version') return show(version, EXIT.done);
  if (name !== undefined && isCommand(name)) {
    const [summary, load] = commands[name];
    const command = await load();
    return wantsHelp ? show(helpOf(command, summary), EXIT.done) : command.run(parseCommandArgs(command, rest));
  }
  if (name === undefined || wantsHelp) return show(overview(), wantsHelp ? EXIT.done : EXIT.usage);
  const near = nearestName(name, [...Object.keys(commands), '--help', '--version']);
  throw new HostError('invalid_spec', `there is no command '${name.slice(0, 100)}'`, {
    reason: 'usage',
    hint: `${near === undefined ? '' : `did you mean ${near}? `}hostler --help lists the commands`,
  });
}

function overview(): string {
  return [
    `The supervised host for MCP servers. (hostler v${version})`,
    '',
    'USAGE hostler COMMAND [OPTIONS]',
    '',
    ...Object.entries(commands).map(([name, [summary]]) => `  ${name.padEnd(14)}${summary}`),
    '',
    'hostler COMMAND --help shows the options of a command.',
  ].join('\n');
}

function show(text: string, exitCode: number): number {
  print(text);
  return exitCode;
}

/** An error may quote text of a server, which must not start a new line. */
const oneLine = (text: string) => neutraliseLine(text, LIMITS.quotedChars);

function report(error: unknown): number {
  if (isHostError(error)) {
    console.error(`hostler: ${oneLine(error.message)} [${error.code}]`);
    if (error.hint !== undefined) console.error(`         ${oneLine(error.hint)}`);
    return exitCodeOf(error);
  }
  console.error('hostler: internal error', error);
  return EXIT.failed;
}

// Descriptors of the parent process must not reach the servers. With an IPC channel, one of the descriptors belongs to Node.
if (!process.channel) closeInheritedDescriptors();
// Without a listener, EPIPE would end the process when the reader of its output exits.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
void start(process.argv.slice(2))
  .catch(report)
  .then((exitCode) => {
    process.exitCode = exitCode;
  });
