/**
 * What a command is: its words on the command line, parsed strictly, and what it does with them.
 * Not here: which commands there are (commands.ts).
 *
 * Invariant: a word that a command does not know is an error that shows how it is used, and nothing was done.
 */
import { type ParseArgsConfig, parseArgs } from 'node:util';
import { HostError } from '../kernel/errors.js';
import { nearestName } from '../kernel/nearest-name.js';

type Options = NonNullable<ParseArgsConfig['options']>;

export interface Words {
  readonly positionals: readonly string[];
  /** Everything after `--`, for a command that runs another program; else empty. */
  readonly behindDashes: readonly string[];
  text(option: string): string | undefined;
  all(option: string): readonly string[];
  has(option: string): boolean;
}

export interface CommandSpec {
  readonly name: string;
  /** Behind the name. */
  readonly usage: string;
  readonly summary: string;
  /** Name to what it means; a name that ends in `=` takes a value, in `=*` any number of them. */
  readonly options: Readonly<Record<string, string>>;
  readonly positionals: readonly [min: number, max: number];
  /** The words after `--` are the command line of another program. */
  readonly takesCommand?: boolean;
}

export interface Command extends CommandSpec {
  run(words: Words): Promise<number>;
}

export const usageOf = ({ name, usage }: CommandSpec): string => `usage: hostler ${name} ${usage}`.trimEnd();

export function parseWords(spec: CommandSpec, argv: readonly string[]): Words {
  const dashes = spec.takesCommand ? argv.indexOf('--') : -1;
  const behindDashes = dashes < 0 ? [] : argv.slice(dashes + 1);
  const { values, positionals } = parse(spec, dashes < 0 ? argv : argv.slice(0, dashes));
  const [min, max] = spec.positionals;
  if (positionals.length < min) throw wrong(spec, 'too few arguments');
  if (positionals.length > max)
    throw wrong(spec, `'${String(positionals[max]).slice(0, 100)}' is one argument too many`);
  const all = (option: string): string[] => {
    const value = values[option];
    return (Array.isArray(value) ? value : [value]).filter((each) => typeof each === 'string');
  };
  return {
    ...{ positionals, behindDashes, all },
    text: (option) => all(option)[0],
    has: (option) => values[option] === true,
  };
}

function parse(spec: CommandSpec, argv: readonly string[]) {
  const options: Options = {};
  for (const key of Object.keys(spec.options)) {
    const [name = '', kind] = key.split('=');
    options[name] = kind === undefined ? { type: 'boolean' } : { type: 'string', multiple: kind === '*' };
  }
  try {
    return parseArgs({ args: [...argv], options, allowPositionals: true, strict: true });
  } catch (error) {
    const { message, code } = error as NodeJS.ErrnoException;
    const [sentence = 'cannot be understood'] = message.split(/\. |\.$/);
    const near = code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION' ? nearestOption(message, Object.keys(options)) : undefined;
    const question = near === undefined ? '' : `; did you mean --${near}?`;
    throw wrong(spec, `${sentence.charAt(0).toLowerCase()}${sentence.slice(1)}${question}`);
  }
}

/** Node names the unknown option in quotes; everything else in its message is fixed text. */
function nearestOption(message: string, known: readonly string[]): string | undefined {
  const [, written] = /'-{1,2}([^'=]{1,100})/.exec(message) ?? [];
  return written === undefined ? undefined : nearestName(written, known);
}

/** A usage error, which has an exit code of its own. */
export const wrong = (spec: CommandSpec, what: string): HostError =>
  new HostError('invalid_spec', `${spec.name}: ${what}`, { reason: 'usage', hint: usageOf(spec) });

export function helpOf(spec: CommandSpec): string {
  const rows = Object.entries(spec.options).map(([key, means]) => {
    const [name = '', kind] = key.split('=');
    return [`  --${name}${kind === undefined ? '' : ' <value>'}`, means] as const;
  });
  const width = Math.max(0, ...rows.map(([option]) => option.length));
  const lines = rows.map(([option, means]) => `${option.padEnd(width)}  ${means}`);
  return [`${spec.summary}\n`, usageOf(spec), ...(lines.length === 0 ? [] : ['', ...lines])].join('\n');
}
