import { expect, test } from 'vitest';
import type { StatusRow } from '../../host/status.js';
import { firstLine, firstScreen } from './first-screen.js';
import { ago } from './print.js';
import { statusTable } from './status-table.js';
import { type Line, paint, plainScreen, type Screen } from './styled.js';
import { table } from './table.js';

const row = (name: string, changes: Partial<StatusRow> = {}) =>
  ({
    name,
    state: 'registered',
    forMs: 65_000,
    tools: 0,
    calls: 0,
    running: 0,
    queue: 0,
    circuit: 'closed',
    changedTools: 0,
    escaped: 0,
    ...changes,
  }) as StatusRow;
const rows = [
  row('memory', { state: 'ready', active: true, tools: 9, pid: 7, calls: 12, running: 2, queue: 1 }),
  row('sleepy'),
  row('lost', {
    state: 'parked',
    nextProbeInMs: 56_000,
    lastError: { code: 'connect_failed', message: 'no such\u001b[31m command', at: '', agoMs: 0 },
  }),
];
const screen = {
  version: '1.2.3',
  url: 'http://127.0.0.1:8383/mcp',
  config: '/c/hostler.json',
  dataDir: '/d',
  rows,
  key: { text: 'hk_secret', isNew: true, file: '/d/key' },
  screen: { ...plainScreen, width: 120 },
};
const shown = (lines: readonly Line[], look: Screen = plainScreen) => lines.map((line) => paint(line, look));

test('the first screen shows address, servers and how to connect, and a new key in full', () => {
  expect(shown(firstScreen(screen))).toEqual([
    'hostler 1.2.3  http://127.0.0.1:8383/mcp',
    'configuration /c/hostler.json',
    'data in /d',
    '',
    'Connect a client:',
    '  claude mcp add --transport http hostler http://127.0.0.1:8383/mcp --header "Authorization: Bearer hk_secret"',
    '  {"mcpServers":{"hostler":{"type":"http","url":"http://127.0.0.1:8383/mcp","headers":{"Authorization":"Bearer hk_secret"}}}}',
    'The key is stored in /d/key and is not shown again.',
    '',
    '  memory  ready   9 tools',
    '  sleepy  asleep',
    '  lost    parked           next try in 56s; no such\\u{1b}[31m command',
    '',
    '3 servers: 1 ready, 1 asleep, 1 parked; 9 tools; 12 calls',
    'Ctrl-C stops everything. Elsewhere: hostler status, tools, logs, why SERVER.',
  ]);
});

test('for a key that is not new, the first screen shows only the path of the key file', () => {
  const text = shown(firstScreen({ ...screen, key: { ...screen.key, isNew: false, file: "/my d'ata/key" } })).join(
    '\n',
  );
  expect(text).not.toContain('hk_secret');
  expect(text).toContain(`Bearer $(cat '/my d'\\''ata/key')"`);
  expect(firstLine({ ...screen, servers: 3 })).toBe(
    'hostler 1.2.3 serves 3 servers at http://127.0.0.1:8383/mcp; the key is in /d/key',
  );
});

test('without a key or without HTTP no key is shown', () => {
  const text = (changes: object) => shown(firstScreen({ ...screen, ...changes })).join('\n');
  expect(text({ key: undefined })).toContain('No key is needed');
  expect(text({ url: undefined })).not.toContain('Connect');
  expect(firstLine({ ...screen, url: undefined, servers: 3 })).toBe('hostler 1.2.3 serves 3 servers over stdio');
  expect(text({ rows: [] })).toContain('no servers are configured');
});

test('after a failed list, the note says whether there are no tools or those of an earlier list', () => {
  const noteIn = (tools: number) =>
    shown(
      statusTable(
        [row('a', { tools, toolsError: "server 'a' answered tools/list with error -32000: locked" })],
        plainScreen,
      ),
    )[1];
  expect(noteIn(0)).toMatch(/ no tools: answered tools\/list with error -32000: locked$/);
  expect(noteIn(9)).toMatch(/ tools of an earlier list: answered tools\/list with error -32000: locked$/);
});

test('the table of states is aligned, and as wide as the terminal', () => {
  const narrow = { ...plainScreen, width: 80 };
  expect(shown(statusTable(rows, narrow))).toEqual([
    'SERVER  STATE   FOR    TOOLS  CALLS                  PID  NOTE',
    'memory  ready   1m 5s  9      12 (2 now, 1 waiting)  7',
    'sleepy  asleep  1m 5s  0      0                      -',
    'lost    parked  1m 5s  0      0                      -    next try in 56s; no s…',
  ]);
  expect(table([], narrow)).toEqual([]);
});

test.each([
  [0, 'just now'],
  [59_000, '59s ago'],
  [125_000, '2m ago'],
  [90_000_000, '1d ago'],
])('%i ms before now is %s', (ms, text) => {
  expect(ago(ms)).toBe(text);
});
