/** Help pages: one for each command, and the list of all. A page has at most 24 lines of 80 columns. */
import { type Command, type CommandTable, optionOf, usageOf } from '../command.js';
import { type Line, span, wrap } from './styled.js';

const columns = 80;

/** With a `subcommand` that has options of its own, the page lists only these. */
export function helpOf(command: Command, summary: string, subcommand?: string): Line[] {
  const { options, optionsOf = {}, example } = command;
  const own = subcommand === undefined ? undefined : optionsOf[subcommand];
  const entries = Object.entries(own ?? options).map(([key, meaning]) => ({ ...optionOf(key), meaning }));
  const noShort = entries.some(({ short }) => short) ? '    ' : '';
  const rows = entries.map(({ name, short, takesValue, meaning }) => {
    return [`  ${short ? `-${short}, ` : noShort}--${name}${takesValue ? ' <value>' : ''}`, meaning] as const;
  });
  const width = Math.max(0, ...rows.map(([option]) => option.length));
  const usage = usageOf(command).match(/\[[^\]]*\](?:\.\.\.)?|"[^"]*"|\S+/g) ?? [];
  const more = Object.keys(optionsOf).filter((name) => own === undefined && name !== subcommand);
  return [
    summary,
    '',
    ['  $ ', span('name', `hostler ${example}`)],
    '',
    ...wrap(usage, columns, '       '),
    ...(rows.length === 0 ? [] : ['', ...rows.map(([option, meaning]) => `${option.padEnd(width)}  ${meaning}`)]),
    ...more.map((name) => `  hostler ${command.name} ${name} --help shows the options of ${name}.`),
  ];
}

/** Rows of the overview: the commands that share a row, and their summary. */
function rowsOf(table: CommandTable): (readonly [names: string, summary: string])[] {
  const rows: [string, string][] = [];
  for (const [name, [summary, , row]] of Object.entries(table)) {
    const last = rows.at(-1);
    if (row === '' && last) last[0] += `, ${name}`;
    else rows.push([name, row ?? summary]);
  }
  return rows;
}

export function overview(version: string, table: CommandTable): Line[] {
  const rows = rowsOf(table);
  const width = Math.max(...rows.map(([names]) => names.length));
  return [
    [span('strong', 'hostler'), ` ${version}: the supervised host for MCP servers`],
    '',
    ...rows.map(([names, summary]): Line => ['  ', span('name', names.padEnd(width)), `  ${summary}`]),
    '',
    'hostler COMMAND --help shows one command, hostler help TOPIC explains states,',
    'codes and arguments. Text output may change; scripts use --json.',
  ];
}
