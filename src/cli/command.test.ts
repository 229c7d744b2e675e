import { describe, expect, test } from 'vitest';
import { ERRORS, type ErrorCode, HostError } from '../kernel/errors.js';
import { answerText, call, targetOf } from './call.js';
import { optionOf, parseCommandArgs, usageOf } from './command.js';
import { commands } from './commands.js';
import { exitCodeOf } from './exit-codes.js';
import { helpOf, overview } from './output/help.js';
import { paint, plainScreen, widthOf } from './output/styled.js';
import { probe } from './probe.js';

const all = await Promise.all(Object.values(commands).map(([, load]) => load()));

test('the commands and their arguments are an interface', () => {
  expect(all.map(({ name }) => name)).toEqual(Object.keys(commands));
  expect(all.map((command) => usageOf(command).replace('usage: ', ''))).toEqual([
    'hostler up [--config FILE] [--host ADDRESS] [--port N] [--data-dir DIR] [--auth key|none] [--stdio] [--json] [--show-key]',
    'hostler status [SERVER] [--json] [--watch]',
    'hostler tools [SERVER] [--signatures | --schema] [--json]',
    'hostler call SERVER.TOOL [k=v | k:=json | k=@file]... | SERVER TOOL [JSON | -] [--arg k=v]... [--timeout 30s] [--json]',
    'hostler logs [SERVER] [--since 10m] [--tail N] [--follow] [--json]',
    'hostler why SERVER[/TOOL] [--role R] [--json]',
    'hostler doctor [--config FILE] [--json]',
    'hostler start SERVER [--json]',
    'hostler stop SERVER [--json]',
    'hostler reload SERVER [--json]',
    'hostler restart [--json]',
    'hostler down [--json]',
    'hostler login SERVER [--no-browser] [--issuer URL] [--scopes "a b"] [--port N] [--timeout 10m] [--fresh] [--yes] [--json]',
    'hostler logout SERVER|URL [--account NAME] [--keep-remote] [--json]',
    'hostler auth [SERVER] [--json]',
    'hostler approve [SERVER[/TOOL]] [--all] [--yes] [--hash TOOL=sha256:...]... [--undo] [--json]',
    'hostler enable SERVER[/TOOL] [--json]',
    'hostler disable SERVER[/TOOL] [--json]',
    'hostler trust [FILE] [--yes] [--json] | --list | --remove [FILE]',
    'hostler key add NAME [--role R|--no-role] [--worker W|--host] [--expires DATE] [--nats] [--key-file FILE] | list [--json] | revoke NAME | nats',
    'hostler worker --broker URL [--key-file FILE] [--timeout 60s] [--insecure] [--json]',
    'hostler probe [--json] [--timeout 30s] [--env NAME=VALUE]... [--cwd DIR] [--sandbox group|standard] -- COMMAND... | [--header "NAME: VALUE"]... URL',
    'hostler help [COMMAND | states | codes | arguments | environment | clients] [--json]',
    'hostler schema [COMMAND] [--json]',
    'hostler version [--json]',
  ]);
});

describe('AC-E14 a help page fits a terminal of 80 columns and 24 lines', () => {
  const pages = all.flatMap((command) => {
    const [summary = ''] = commands[command.name] ?? [];
    return [undefined, ...Object.keys(command.optionsOf ?? {})].map(
      (sub) => [`${command.name} ${sub ?? ''}`, helpOf(command, summary, sub)] as const,
    );
  });
  test.each([...pages, ['hostler', overview('1.2.3', commands)] as const])('%s', (_name, lines) => {
    const text = lines.map((line) => paint(line, plainScreen));
    expect(text.length).toBeLessThanOrEqual(24);
    expect(text.filter((line) => widthOf(line) > 80)).toEqual([]);
  });
  test.each(all)('$name explains each of its options, after one example', (command) => {
    const { name, options, optionsOf = {} } = command;
    const text = [undefined, ...Object.keys(optionsOf)]
      .flatMap((sub) => helpOf(command, 'Summary.', sub))
      .map((line) => paint(line, plainScreen))
      .join('\n');
    expect(text).toMatch(new RegExp(`^Summary\\.\n\n {2}\\$ hostler ${name}\\b.*\n\nusage: hostler ${name}`));
    for (const key of [options, ...Object.values(optionsOf)].flatMap(Object.keys))
      expect(text).toContain(`--${optionOf(key).name} `);
  });
});

test('AC-E14 the overview names every command once', () => {
  const text = overview('1.2.3', commands).map((line) => paint(line, plainScreen));
  const rows = text.flatMap((line) => /^ {2}((?:\w+, )*\w+) {2,}/.exec(line)?.[1] ?? []);
  expect(rows.flatMap((row) => row.split(', '))).toEqual(Object.keys(commands));
});

test('options and positionals are parsed', () => {
  const args = parseCommandArgs(call, ['git', 'log', '--arg', 'a=1', '{}', '--arg=b=2', '--json']);
  expect([args.positionals, args.all('arg'), args.has('json'), args.text('timeout')]).toEqual([
    ['git', 'log', '{}'],
    ['a=1', 'b=2'],
    true,
    undefined,
  ]);
});

test.each([
  [[], 'too few arguments'],
  [['a', 'b', '--jsn'], 'unknown option'],
  [['a', 'b', '--timeout'], 'argument missing'],
])('%j: %s', (argv, message) => {
  expect(() => parseCommandArgs(call, argv)).toThrow(message);
});

test.each(all)('E12 $name refuses an option it does not know', (spec) => {
  for (const word of ['--no-such-option', '--no-such-option=1', '-z']) {
    const run = () => parseCommandArgs(spec, [word]);
    expect(run).toThrow(expect.objectContaining({ code: 'invalid_spec', hint: usageOf(spec) }));
    expect(run).toThrow(expect.objectContaining({ details: expect.objectContaining({ reason: 'usage' }) }));
  }
  for (const key of Object.keys(spec.options)) {
    const { name } = optionOf(key);
    const mistyped = `--${name.slice(0, 1)}${name.slice(2)}`;
    if (name.length < 4) continue;
    expect(() => parseCommandArgs(spec, [mistyped])).toThrow(`unknown option '${mistyped}'; did you mean --${name}?`);
  }
});

test('a file without its option is an error that names the option', () => {
  const up = all.find(({ name }) => name === 'up');
  const parse = () => up && parseCommandArgs(up, ['my servers.json']);
  expect(parse).toThrow(
    expect.objectContaining({ hint: expect.stringMatching(/^did you mean --config 'my servers\.json'\? usage: /) }),
  );
});

test('only a command that runs another program accepts arguments after two dashes', () => {
  const args = parseCommandArgs(probe, ['--json', '--', 'node', '--sanbox', '--', 'x']);
  expect([args.has('json'), args.positionals, args.afterDashes]).toEqual([true, [], ['node', '--sanbox', '--', 'x']]);
  expect(parseCommandArgs(call, ['a', '--', '--b']).positionals).toEqual(['a', '--b']);
});

test('every failure has one exit code', () => {
  const codes = (wanted: number): ErrorCode[] =>
    (Object.keys(ERRORS) as ErrorCode[]).filter((code) => exitCodeOf(new HostError(code, '')) === wanted);
  expect(codes(2)).toEqual(['invalid_spec']);
  expect(codes(3)).toEqual(['unauthenticated', 'denied', 'budget_exceeded', 'schema_changed', 'tool_throttled']);
  expect(codes(4)).toEqual([
    ...['server_stopped', 'server_disabled', 'circuit_open', 'server_parked', 'server_ejected', 'reconnecting'],
    ...['needs_reauth', 'overloaded'],
  ]);
});

test.each([
  [['git', 'log', '{}'], 'git', 'log', ['{}']],
  [['git', 'log', '-'], 'git', 'log', ['-']],
  [['git', 'log'], 'git', 'log', []],
  [['git', 'log', 'n=1', 'x:=2'], 'git', 'log', ['n=1', 'x:=2']],
  [['git.log'], 'git.log', undefined, []],
  [['git.log', 'n=1'], 'git.log', undefined, ['n=1']],
  [['git.log', '{"n":1}'], 'git.log', undefined, ['{"n":1}']],
  [['git.log', '-'], 'git.log', undefined, ['-']],
])('the words %j name %s and %s', (positionals, server, tool, words) => {
  expect(targetOf(positionals)).toEqual({ target: tool === undefined ? { server } : { server, tool }, words });
});

test.each([
  [
    '{"content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"x"}]}',
    'a\n[image image/png 0 B]',
  ],
  ['{"content":[{"type":"resource_link","uri":"file:///a"},{"type":"odd"}]}', '[resource_link file:///a]\n[odd]'],
  ['{"content":[],"structuredContent":{"a":1}}', '{\n  "a": 1\n}'],
  ['{}', '{}'],
])('the answer %s is shown as %j', (json, text) => {
  expect(answerText(json)).toBe(text);
});
