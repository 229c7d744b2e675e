#!/usr/bin/env node
/**
 * argv → a command, and its exit code. What each command does is in the file of its name.
 */
import { readFileSync } from 'node:fs';
import { stripVTControlCharacters } from 'node:util';
import { defineCommand, renderUsage, runCommand } from 'citty';
import { HostError, isHostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { closeInheritedDescriptors } from '../transports/stdio/inherited-descriptors.js';
import { EXIT } from './exit-codes.js';
import { probeCommand } from './probe.js';

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
  version: string;
};

const probe = probeCommand(version);

const main = defineCommand({
  meta: { name: 'hostler', version, description: 'The supervised host for MCP servers.' },
  subCommands: { probe },
});

/** Colours are for terminals. */
const print = (text: string) => console.log(process.stdout.isTTY ? text : stripVTControlCharacters(text));

async function run(argv: string[]): Promise<number> {
  const [name, ...rest] = argv;
  const beforeCommand = argv.slice(0, argv.includes('--') ? argv.indexOf('--') : argv.length);
  const wantsHelp = beforeCommand.includes('--help') || beforeCommand.includes('-h');
  if (name === '--version') {
    print(version);
    return EXIT.done;
  }
  if (name === 'probe') {
    if (wantsHelp) return show(await renderUsage(probe), EXIT.done);
    // The command itself and not its parent: citty keeps the result of a subcommand to itself.
    const { result } = await runCommand(probe, { rawArgs: rest });
    return result as number;
  }
  if (name === undefined || wantsHelp) return show(await renderUsage(main), wantsHelp ? EXIT.done : EXIT.usage);
  throw new HostError('invalid_spec', `there is no command '${name.slice(0, 100)}'`, {
    hint: 'hostler --help lists the commands',
  });
}

function show(text: string, exitCode: number): number {
  print(text);
  return exitCode;
}

/** Whatever of a server's words an error quotes, it cannot start a line of its own. */
const oneLine = (text: string) => neutraliseLine(text, LIMITS.quotedChars);

/** One line that says what went wrong, and one that says what to do. */
function report(error: unknown): number {
  if (isHostError(error)) {
    console.error(`hostler: ${oneLine(error.message)} [${error.code}]`);
    if (error.hint !== undefined) console.error(`         ${oneLine(error.hint)}`);
    return error.code === 'invalid_spec' ? EXIT.usage : EXIT.failed;
  }
  if (error instanceof Error && error.name === 'CLIError') {
    return report(
      new HostError('invalid_spec', stripVTControlCharacters(error.message), {
        hint: 'hostler --help lists the commands',
      }),
    );
  }
  console.error('hostler: internal error', error);
  return EXIT.failed;
}

// What our own starter left open must not reach every server we start. With an IPC channel one of them is Node's own.
if (!process.channel) closeInheritedDescriptors();
process.exitCode = await run(process.argv.slice(2)).catch(report);
