#!/usr/bin/env node
/** Entry point: runs the command that argv names, and sets the exit code. */
import { faultsOf, HostError, isHostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { didYouMean } from '../kernel/nearest-name.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { closeInheritedDescriptors } from '../transports/stdio/inherited-descriptors.js';
import { parseCommandArgs } from './command.js';
import { commands } from './commands.js';
import { EXIT, exitCodeOf } from './exit-codes.js';
import { helpOf, overview } from './output/help.js';
import { printLines } from './output/print.js';
import type { Line } from './output/styled.js';
import { version } from './version.js';

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
  if (name === '--version' || name === '-v') return show([version]);
  const entry = name !== undefined && Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (entry) {
    const [summary, load] = entry;
    const command = await load();
    return wantsHelp ? show(helpOf(command, summary, rest[0])) : command.run(parseCommandArgs(command, rest), commands);
  }
  if (wantsHelp) return show(overview(version, commands));
  if (name === undefined || (name === '--json' && rest.length === 0))
    return (await import('./first.js')).first(name === '--json');
  throw new HostError('invalid_spec', `there is no command '${name.slice(0, 100)}'`, {
    reason: 'usage',
    hint: `${didYouMean(name, [...Object.keys(commands), '--help', '--version'])}${name.startsWith('-') ? 'options follow the command; ' : ''}hostler --help lists the commands`,
  });
}

function show(lines: readonly Line[]): number {
  printLines(lines);
  return EXIT.done;
}

const faultsMax = 50;

/** An error may quote text of a server, which must not start a new line. */
const oneLine = (text: string) => neutraliseLine(text, LIMITS.quotedChars);

function report(error: unknown): number {
  if (isHostError(error)) {
    for (const { message, code, hint } of faultsOf(error).slice(0, faultsMax)) {
      console.error(`hostler: ${oneLine(message)} [${code}]`);
      if (hint !== undefined) console.error(`         ${oneLine(hint)}`);
    }
    return exitCodeOf(error);
  }
  // Only the stack: members of an error, such as a request, may contain secrets.
  console.error('hostler: internal error', error instanceof Error ? error.stack : typeof error);
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
