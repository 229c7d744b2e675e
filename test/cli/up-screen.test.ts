/** `hostler up` on a real pseudo terminal. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { fixtureEntry, Workplace } from './hostler-process.js';

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
const redrawn = /\u001b\[\d+A\r\u001b\[J/;

let place: Workplace;
beforeEach(() => {
  place = new Workplace();
  place.configure({ mcpServers: { one: fixtureEntry(), two: fixtureEntry() } });
});
afterEach(() => place.remove());

async function onTerminal(env: Readonly<Record<string, string>>, until: (shown: string) => boolean): Promise<string> {
  const command = `stty cols 100 rows 30; exec '${process.execPath}' '${main}' up --port=0 --config '${place.config}' --data-dir '${place.dataDir}'`;
  const { CI: _, NO_COLOR: __, FORCE_COLOR: ___, ...own } = process.env;
  const up = spawn('script', ['-qfec', command, '/dev/null'], {
    cwd: path.dirname(place.config),
    env: { ...own, TERM: 'xterm', ...env },
  });
  const ended = once(up, 'exit');
  let shown = '';
  up.stdout.on('data', (chunk) => (shown += chunk));
  try {
    await eventually('the screen', () => until(stripVTControlCharacters(shown)));
  } finally {
    up.stdin.write('\u0003');
    await ended;
  }
  return shown;
}

test('the block at the end is redrawn below the log until the tools of all servers are known, and then removed', async () => {
  const shown = await onTerminal({}, (text) => text.includes('2 servers: 2 ready'));
  expect(shown).toMatch(redrawn);
  const screen = screenOf(shown);
  expect(screen.filter((line) => /starting → ready/.test(line))).toHaveLength(2);
  expect(screen.some((line) => line.startsWith('Connect a client:'))).toBe(true);
  expect(screen.filter((line) => /^ {2}(?:one|two) |2 servers:|learning|Ctrl-C/.test(line))).toEqual([]);
  expect(screen.at(-1)).toContain('SIGINT: stopping');
});

test.each<Record<string, string>>([{ TERM: 'dumb' }, { CI: 'true' }])(
  'AC-E14 with %j the screen is printed once',
  async (env) => {
    const shown = await onTerminal(env, (text) => text.split('→ ready').length === 3);
    expect(shown).not.toMatch(redrawn);
    if (env.TERM === 'dumb') expect(shown).not.toMatch(/\u001b|[●○◐✗■✓]/u);
    expect(shown.split('Ctrl-C stops everything')).toHaveLength(2);
  },
);

/** The lines that a terminal shows after all output. */
function screenOf(output: string): string[] {
  const lines: string[] = [];
  for (const part of output.split(/(?=\u001b\[\d+A\r\u001b\[J)/)) {
    const [whole = '', up] = /^\u001b\[(\d+)A\r\u001b\[J/.exec(part) ?? [];
    if (up !== undefined) lines.splice(-Number(up) - 1, Number(up) + 1, '');
    const [first = '', ...rest] = stripVTControlCharacters(part.slice(whole.length)).replaceAll('\r', '').split('\n');
    lines.push(`${lines.pop() ?? ''}${first}`, ...rest);
  }
  return lines.filter((line) => line !== '');
}
