/**
 * AC-E14 the text of every command, end to end: through pipes, with NO_COLOR and TERM=dumb, and on terminals of 80 and 120 columns.
 * The texts of one server are hostile in every place where a command shows them.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { commands } from '../../src/cli/commands.js';
import { widthOf } from '../../src/cli/output/styled.js';
import { eventually } from '../eventually.js';
import { countFor } from '../tier.js';
import { fixtureEntry, Running, Workplace } from './hostler-process.js';

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
const place = new Workplace();

const hostile = 'x\u001b[2J\u001b]0;title\u0007\u202e\u009b31m\r\n\u2028y \u200b';
/** Shows the hostile text in its own name, its tools, its answers, its errors and its stderr. */
const server = `const bad = ${JSON.stringify(hostile)};
process.stderr.write(bad + '\\n');
const tool = (name) => ({ name, title: bad, description: bad.repeat(20), inputSchema: { type: 'object', properties: { text: { type: 'string', description: bad } } } });
const results = {
  initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: bad, version: bad }, instructions: bad },
  'tools/list': { tools: [tool('fine'), tool('fails')] },
  'resources/list': { resources: [] }, 'prompts/list': { prompts: [] },
};
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const body = results[method] ? { result: results[method] }
    : method === 'tools/call' && params.name === 'fine' ? { result: { content: [{ type: 'text', text: bad }] } }
    : { error: { code: -32603, message: bad } };
  console.log(JSON.stringify({ jsonrpc: '2.0', id, ...body }));
});`;
const hostileEntry = { command: process.execPath, args: ['-e', server] };

beforeAll(async () => {
  const file = path.join(place.folder, 'changing.cjs');
  const write = (text: string) => writeFileSync(file, text);
  write(server.replace("type: 'string'", "type: 'number'"));
  place.configure({
    mcpServers: {
      fixture: fixtureEntry(),
      hostile: hostileEntry,
      changing: { command: process.execPath, args: [file] },
      'a server with quite a long name from a client': { comand: 'x' },
      missing: { command: `no-such-command-here ${hostile}` },
    },
    keys: {},
  });
  await place.up().ready();
  const ready = async () => (await place.hostler('status')).stdout;
  await eventually('all are learnt', async () => (await ready()).match(/ ready /g)?.length === 3);
  write(server);
  await place.hostler('reload', 'changing');
  await place.hostler('start', 'changing');
  await eventually('tools wait for approval', async () => (await ready()).includes('hostler approve'));
});
afterAll(() => place.remove());

/** At least one line for each command. `npm test` runs only the lines that show texts of servers, and fewer of them on terminals. */
const lines: readonly (readonly string[])[] = [
  ['status'],
  ['status', 'hostile'],
  ['tools'],
  ['call', 'hostile.fine', 'text=x'],
  ['call', 'hostile.fails', 'text=x'],
  ['logs'],
  ['why', 'changing/fine'],
  ['doctor'],
  ['approve'],
  ['key', 'list'],
  ['status', 'missing'],
  ['probe', '--', process.execPath, '-e', server],
  ['help'],
  ['tools', 'hostile', '--signatures'],
  ['tools', 'hostile', '--schema'],
  ['call', 'hostile.fine', 'txet=x'],
  ['call', `hostile.${hostile.replaceAll(/\s/g, '')}`],
  ['logs', 'hostile', '--tail', '20'],
  ['why', 'hostile/fine'],
  ['why', 'missing'],
  ['approve', 'changing/fine'],
  ['key', 'revoke', hostile],
  ['disable', 'hostile/fails'],
  ['enable', 'hostile/fails'],
  ['stop', 'fixture'],
  ['start', 'fixture'],
  ['reload', 'fixture'],
  ['trust', '--list'],
  ['auth'],
  ['login', 'fixture'],
  ['logout', 'fixture'],
  ['worker', '--broker', 'ws://127.0.0.1:1', '--timeout', '100ms'],
  ['help', 'states'],
  ['help', 'codes'],
  ['help', 'arguments'],
  ['help', 'environment'],
  ['version'],
  ['schema', 'version'],
  ['up', '--port', 'x'],
  ['restart', '--no-such-option'],
  ['down', '--no-such-option'],
];
const inPipes = lines.slice(0, countFor(27, lines.length));
const onTerminals = lines.slice(0, countFor(10, lines.length));

const configured: readonly string[] = ['key', 'login', 'logout', 'doctor'];
const plain: readonly string[] = [
  'help',
  'version',
  'schema',
  'probe',
  'worker',
  'trust',
  'auth',
  'up',
  'restart',
  'down',
];
const argsOf = ([name = '', ...words]: readonly string[]): string[] => {
  const [before, after] = name === 'probe' ? [[], words] : [words, []];
  return [
    ...[name, ...before],
    ...(configured.includes(name) ? ['--config', place.config] : []),
    ...(plain.includes(name) || name === 'key' || name === 'login' || name === 'logout'
      ? []
      : ['--data-dir', place.dataDir]),
    ...after,
  ];
};

const { FORCE_COLOR: _, NO_COLOR: __, CI: ___, ...own } = process.env;
const home = { HOME: place.folder, XDG_CONFIG_HOME: '', XDG_DATA_HOME: '', XDG_STATE_HOME: '', HOSTLER_DATA_DIR: '' };

/** Control, direction and invisible characters, also tabs. Line ends are split off before. */
const unsafe = /[\p{Cc}\p{Bidi_Control}\u2028\u2029\u200b]/u;
const faulty = (text: string): string[] => text.split('\n').filter((line) => unsafe.test(line));

test('the list has every command', () => {
  expect([...new Set(lines.map(([name]) => name))].sort()).toEqual(Object.keys(commands).sort());
});

test('AC-E14 no command prints a control character into a pipe', async () => {
  const waiting = inPipes.entries();
  // A few at a time.
  const run = async () => {
    for (const [, line] of waiting) {
      const running = new Running(argsOf(line), { ...home, FORCE_COLOR: '', TERM: 'xterm-256color' }, place.folder);
      running.child.stdin?.end();
      const { stdout, stderr } = await running.closed;
      const text = stdout + stderr;
      expect([line, text.trim() === '', faulty(text)]).toEqual([line, false, []]);
    }
  };
  await Promise.all([run(), run(), run()]);
});

/** Runs lines one after the other on one terminal, and returns what each printed. */
async function onTerminal(columns: number, env: Readonly<Record<string, string>>): Promise<Map<string, string>> {
  const quoted = (word: string) => `'${word.replaceAll("'", `'\\''`)}'`;
  const script = path.join(place.folder, `run-${columns}-${Object.keys(env).join('')}.sh`);
  const hostler = `${quoted(process.execPath)} ${quoted(main)}`;
  const each = onTerminals.map(
    (line, at) => `printf '\\n=== ${at}\\n'; ${hostler} ${argsOf(line).map(quoted).join(' ')} </dev/null`,
  );
  writeFileSync(script, [`stty cols ${columns} rows 50`, ...each].join('\n'));
  const child = spawn('script', ['-qfec', `sh ${quoted(script)}`, '/dev/null'], {
    cwd: place.folder,
    env: { ...own, ...home, TERM: 'xterm-256color', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let shown = '';
  child.stdout.on('data', (chunk) => (shown += chunk));
  await once(child, 'close');
  const parts = shown.replaceAll('\r\n', '\n').split(/\n=== (\d+)\n/);
  return new Map(onTerminals.map((line, at) => [line.join(' '), parts[2 * at + 2] ?? '']));
}

test.each<[string, Record<string, string>]>([
  ['NO_COLOR', { NO_COLOR: '1' }],
  ['TERM=dumb', { TERM: 'dumb' }],
])('AC-E14 with %s no command prints an escape code on a terminal', async (_name, env) => {
  const shown = await onTerminal(80, env);
  for (const [line, text] of shown) expect([line, faulty(text)]).toEqual([line, []]);
  if (env.TERM === 'dumb') expect([...shown.values()].join('')).not.toMatch(/[●○◐✗■✓]/u);
});

test.each<[string, Record<string, string>, boolean]>([
  ['TERM=dumb', { TERM: 'dumb' }, false],
  ['a terminal that can move its cursor', {}, true],
])('AC-E14 status -w with %s prints table after table', async (_name, env, isMoved) => {
  const command = `stty cols 80 rows 50; exec '${process.execPath}' '${main}' status -w --data-dir '${place.dataDir}'`;
  const child = spawn('script', ['-qfec', command, '/dev/null'], {
    cwd: place.folder,
    env: { ...own, ...home, TERM: 'xterm-256color', ...env },
  });
  const ended = once(child, 'close');
  let shown = '';
  child.stdout.on('data', (chunk) => (shown += chunk));
  try {
    await eventually('two tables', () => shown.split('SERVER').length > 2);
  } finally {
    child.stdin.write('\u0003');
    await ended;
  }
  expect(/\u001b\[\d+A/.test(shown)).toBe(isMoved);
  if (!isMoved) expect(faulty(shown.replaceAll('\r\n', '\n'))).toEqual([]);
});

/** Tables and help pages. Lines that quote a path or an error may be longer. */
const isTable = (line: string): boolean => /^(?:status|tools|key list|help.*)$/.test(line);
/** Commands that print text after a label, which may continue in the next line. */
const isText = (line: string): boolean => /^(?:status .*|why .*|doctor)$/.test(line);
const longestWord = (line: string): number => Math.max(...line.trim().split(' ').map(widthOf));

test.each([80, 120])(
  'AC-E14 on a terminal of %i columns tables fit, and only colours are escape codes',
  async (columns) => {
    const shown = await onTerminal(columns, {});
    const colours = /\u001b\[\d{1,2}m/g;
    for (const [line, text] of shown) expect([line, faulty(text.replaceAll(colours, ''))]).toEqual([line, []]);
    expect([...shown.values()].join('')).toMatch(colours);
    for (const [line, text] of shown) {
      if (!isTable(line) && !isText(line)) continue;
      const wide = stripVTControlCharacters(text)
        .split('\n')
        .filter((each) => widthOf(each) > columns && (isTable(line) || longestWord(each) < columns / 2));
      expect([line, text !== '', wide]).toEqual([line, true, []]);
    }
    const row = stripVTControlCharacters(shown.get('status') ?? '')
      .split('\n')
      .find((each) => each.includes('missing'));
    expect(row).toMatch(/…$/);
  },
);
