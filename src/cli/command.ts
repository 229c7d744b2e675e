/**
 * The command interface, and the strict parser of command-line arguments.
 * Not here: the list of commands (commands.ts).
 * Invariant: an unknown argument is an error that shows the usage, and the command does not run.
 */
import { type ParseArgsConfig, parseArgs } from 'node:util';
import { HostError } from '../kernel/errors.js';
import { nearestName } from '../kernel/nearest-name.js';
import { quoted } from '../kernel/shell-word.js';

type Options = NonNullable<ParseArgsConfig['options']>;

export interface ParsedArgs {
  readonly positionals: readonly string[];
  /** Arguments after `--`; empty unless `Command.takesCommand` is set. */
  readonly afterDashes: readonly string[];
  text(option: string): string | undefined;
  all(option: string): readonly string[];
  has(option: string): boolean;
}

type OptionTexts = Readonly<Record<string, string>>;

export interface Command {
  readonly name: string;
  readonly usage: string;
  /** A command line that works, without `hostler`. Help pages begin with it. */
  readonly example: string;
  /** Help text by option: `name`, `name|n` with a short form, `name=` with a value, `name=*` for a repeatable option with a value. */
  readonly options: OptionTexts;
  /** Further options of a subcommand, which only its own help page lists. */
  readonly optionsOf?: Readonly<Record<string, OptionTexts>>;
  readonly positionals: readonly [min: number, max: number];
  /** True if the arguments after `--` are the command line of another program. */
  readonly takesCommand?: boolean;
  /** `all`: the table of commands, for `hostler help`. */
  run(args: ParsedArgs, all?: CommandTable): Promise<number>;
}

/** `row`: text for the command's row in the overview. A command with an empty `row` shares the row of the command before it. */
type CommandEntry = readonly [summary: string, load: () => Promise<Command>, row?: string];
export type CommandTable = Readonly<Record<string, CommandEntry>>;

/** Reads the key of an option, such as `follow|f` or `tail|n=`. */
export function optionOf(key: string) {
  const [names = '', kind] = key.split('=');
  const [name = '', short] = names.split('|');
  return { name, short, takesValue: kind !== undefined, isMultiple: kind === '*' };
}

/** Options that choose the Hostler to use (config/running-hosts.ts). */
export const hostOptions = {
  'config=': 'the configuration of the Hostler',
  'data-dir=': 'the data directory of the Hostler',
};
export const jsonOption = { json: 'print JSON' };

type Usage = Pick<Command, 'name' | 'usage'>;

export const usageOf = ({ name, usage }: Usage): string => `usage: hostler ${name} ${usage}`.trimEnd();

export function parseCommandArgs(command: Command, argv: readonly string[]): ParsedArgs {
  const dashes = command.takesCommand ? argv.indexOf('--') : -1;
  const afterDashes = dashes < 0 ? [] : argv.slice(dashes + 1);
  const { values, positionals } = parse(command, dashes < 0 ? argv : argv.slice(0, dashes));
  const [min, max] = command.positionals;
  if (positionals.length < min) throw usageError(command, 'too few arguments');
  const odd = positionals[max];
  if (odd !== undefined) {
    const near = 'config=' in command.options && /\.jsonc?$/.test(odd) ? `did you mean --config ${quoted(odd)}? ` : '';
    throw usageError(command, `'${odd.slice(0, 100)}' is an unexpected argument`, `${near}${usageOf(command)}`);
  }
  const all = (option: string): string[] => {
    const value = values[option];
    return (Array.isArray(value) ? value : [value]).filter((each) => typeof each === 'string');
  };
  return {
    ...{ positionals, afterDashes, all },
    text: (option) => all(option)[0],
    has: (option) => values[option] === true,
  };
}

function parse(command: Command, argv: readonly string[]) {
  const options: Options = {};
  for (const key of [command.options, ...Object.values(command.optionsOf ?? {})].flatMap(Object.keys)) {
    const { name, short, takesValue, isMultiple } = optionOf(key);
    const named = short === undefined ? {} : { short };
    options[name] = takesValue ? { type: 'string', multiple: isMultiple, ...named } : { type: 'boolean', ...named };
  }
  try {
    return parseArgs({ args: [...argv], options, allowPositionals: true, strict: true });
  } catch (error) {
    const { message, code } = error as NodeJS.ErrnoException;
    const [sentence = 'the arguments cannot be parsed'] = message.split(/\. |\.$/);
    const near = code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION' ? nearestOption(message, Object.keys(options)) : undefined;
    const question = near === undefined ? '' : `; did you mean --${near}?`;
    throw usageError(command, `${sentence.charAt(0).toLowerCase()}${sentence.slice(1)}${question}`);
  }
}

/** The message of Node contains the unknown option in quotes. */
function nearestOption(message: string, known: readonly string[]): string | undefined {
  const [, written] = /'-{1,2}([^'=]{1,100})/.exec(message) ?? [];
  return written === undefined ? undefined : nearestName(written, known);
}

/** `reason: usage` gives the error exit code 2 (exit-codes.ts). */
export const usageError = (command: Usage, what: string, hint = usageOf(command)): HostError =>
  new HostError('invalid_spec', `${command.name}: ${what}`, { reason: 'usage', hint });
