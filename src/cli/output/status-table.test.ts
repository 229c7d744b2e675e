import { expect, test } from 'vitest';
import type { StatusRow } from '../../host/status.js';
import { approvalLines, noteOf, serverLines, statusTable } from './status-table.js';
import { paint, plainScreen } from './styled.js';

const quiet = { circuit: 'closed', changedTools: 0, escaped: 0, noisy: false, active: false, ejected: false };

test.each([
  ['parked', { nextProbeInMs: 40_000 }, 'next try in 40s'],
  ['ejected', { ejected: true }, 'not tried again before a reload'],
])('W22 the note of a server that is %s gives the time of the next attempt', (state, part, note) => {
  expect(noteOf({ ...quiet, state, ...part } as StatusRow)).toBe(note);
});

test('the note of a server that needs a login is the command to type, once', () => {
  const lastError = { message: `server 's' requires authorization (401); run: hostler login s` };
  const row = { ...quiet, name: 's', state: 'auth_required', nextProbeInMs: 1, lastError };
  expect(noteOf({ ...row, auth: { next: 'run: hostler login s' } } as unknown as StatusRow)).toBe(
    'run: hostler login s',
  );
  expect(noteOf(row as unknown as StatusRow)).toContain('requires authorization');
});

test.each([
  ["server 'a-b': command not found", 'command not found'],
  ["server 'a-b' ended", 'ended'],
  ["server 'a-bc' ended", "server 'a-bc' ended"],
  ['mcpServers.A B: needs a command', 'needs a command'],
  ['mcpServers.A B.env.X: the variable Y is not set', 'env.X: the variable Y is not set'],
  ['mcpServers.A Bc: needs a command', 'mcpServers.A Bc: needs a command'],
])('the row names the server, so the note of %j does not', (message, note) => {
  const lastError = { message, code: 'connect_failed', at: '', agoMs: 0 };
  expect(noteOf({ ...quiet, state: 'parked', name: 'a-b', label: 'A B', lastError } as StatusRow)).toBe(note);
});

test('a refused entry is explained once; an error of its last run is shown beside it', () => {
  const problem = { message: 'mcpServers.s: comand is not a key', hint: 'write command' };
  const lastError = { message: `${problem.message}; ${problem.hint}`, code: 'invalid_spec', at: '', agoMs: 5_000 };
  const row = { ...quiet, state: 'refused', name: 's', problem, lastError, calls: 0, running: 0, queue: 0 };
  const shown = (part: object) =>
    serverLines({ ...row, ...part } as unknown as StatusRow, plainScreen).map((line) =>
      paint(line, plainScreen).trim(),
    );
  expect(shown({}).filter((line) => /comand|write|last error/.test(line))).toEqual([
    'note         comand is not a key',
    'to do        write command',
  ]);
  const exited = { ...lastError, message: "server 's' exited", code: 'transport' };
  expect(shown({ lastError: exited })).toContain('last error   exited [transport], 5s ago');
});

test('E3 the note of a server whose messages reached no client names the setting to change', () => {
  const row = { ...quiet, state: 'ready', active: true } as StatusRow;
  expect(noteOf({ ...row, unattributed: 3 })).toBe('3 messages reached no client: set isolation: per-client');
  expect([noteOf({ ...row, unattributed: 0 }), noteOf(row)]).toEqual(['', '']);
});

test('the command that approves changed tools is shown once for each, and whole on 80 columns', () => {
  const note = '1 tool changed and blocked: hostler approve a-server-with-a-long-name';
  const blocked = { ...quiet, name: 'a-server-with-a-long-name', state: 'ready', changedTools: 1, notes: [note] };
  const rows = [
    { ...blocked, forMs: 0, tools: 1, calls: 12, running: 2, queue: 1 },
    { ...blocked, name: 'b', forMs: 0, tools: 1, calls: 0, running: 0, queue: 0 },
  ] as unknown as StatusRow[];
  expect(rows.map(noteOf)).toEqual([note, note]);
  const screen = { ...plainScreen, width: 80 };
  const text = [...statusTable(rows, screen), ...approvalLines(rows)].map((line) => paint(line, screen));
  expect([text[1]?.includes('hostler approve'), text.at(-1)]).toEqual([
    false,
    '! 2 servers have tools that wait for approval: hostler approve',
  ]);
  expect([approvalLines(rows.slice(1)), approvalLines([{ ...quiet, notes: [] } as unknown as StatusRow])]).toEqual([
    [expect.objectContaining({ text: '! 1 server has tools that wait for approval: hostler approve' })],
    [],
  ]);
});

test('E9 the note of a server names a resource template that is not routed, and how many there are', () => {
  const templates = [{ template: '{+any}', reason: 'no_prefix' }];
  expect(noteOf({ ...quiet, state: 'ready', unroutedTemplates: { count: 3, templates } } as unknown as StatusRow)).toBe(
    '3 resource templates not routed at /mcp, such as {+any} (no_prefix)',
  );
});
