/**
 * Runs every example of docs/cli.md in the order of the page. Each command works, and prints the first line that the page shows.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { commands } from '../../src/cli/commands.js';
import { Running, Workplace } from '../cli/hostler-process.js';
import { eventually } from '../eventually.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const page = readFileSync(path.join(root, 'docs/cli.md'), 'utf8');

/** The words of each command, and the first line of its output on the page. */
const examples = [...page.matchAll(/^\$ hostler (.+)\n(?:(?!\$ |```)(.+)\n)?/gm)].map(([, words = '', first]) => ({
  words,
  first,
}));

/** Splits a command line as a shell does, which removes the quotes. */
const wordsOf = (line: string): string[] =>
  (line.match(/'[^']*'|\S+/g) ?? []).map((word) => word.replace(/^'(.*)'$/, '$1'));

const place = new Workplace();
beforeAll(async () => {
  place.configure({
    mcpServers: {
      memory: {
        command: process.execPath,
        args: [path.join(root, 'node_modules/@modelcontextprotocol/server-memory/dist/index.js')],
        env: { MEMORY_FILE_PATH: path.join(place.folder, 'memory.jsonl') },
      },
    },
    roles: { guest: { allow: [] } },
    broker: { listen: { port: 0 } },
  });
  await place.up().ready();
  // The examples assume a Hostler that knows the tools of its server.
  await eventually('its tools are known', async () =>
    (await place.hostler('tools', '--server', 'memory')).stdout.includes('memory'),
  );
});
afterAll(() => place.remove());

test('there is a chapter and an example for every command', () => {
  for (const name of Object.keys(commands)) {
    expect([name, new RegExp(`^## .*\\b${name}\\b`, 'm').test(page)]).toEqual([name, true]);
    // `up` runs until it is stopped.
    if (name !== 'up') expect([name, examples.some(({ words }) => words.startsWith(name))]).toEqual([name, true]);
  }
});

test.each(examples)('$words', async ({ words, first }) => {
  const argv = wordsOf(words)
    .map((word) => (word.endsWith('.key') ? path.join(place.folder, word) : word))
    .concat(/^(?:doctor|key)/.test(words) ? ['--config', place.config] : [])
    .concat(/^trust (?!--list)/.test(words) ? [place.config] : []);
  const { code, stdout } = await new Running(argv, { HOSTLER_DATA_DIR: place.dataDir }).closed;
  expect([code, stdout === '']).toEqual([0, /^key (?:add|revoke)/.test(words)]);
  // Numbers and times differ from those on the page, so they are left out.
  const shape = (line: string) =>
    line
      .replace(/\d[\d.:TZ-]*/g, 'N')
      .replace(/\bhttp\S+/g, 'URL')
      .replace(/started .*/, 'started')
      .replace(/ +/g, ' ')
      .trimEnd();
  if (first !== undefined) expect(stdout.split('\n').map(shape)).toContain(shape(first));
});
