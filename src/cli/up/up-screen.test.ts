import { expect, test } from 'vitest';
import type { StatusRow } from '../../host/status.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { UpScreen } from './up-screen.js';

const row = (name: string, state: StatusRow['state'], changes: Partial<StatusRow> = {}) =>
  ({
    ...{
      name,
      state,
      forMs: 0,
      tools: 0,
      calls: 0,
      running: 0,
      queue: 0,
      circuit: 'closed',
      changedTools: 0,
      escaped: 0,
    },
    ...changes,
  }) as StatusRow;

/** The terminal: what was written, and the block that it shows at its end. */
class Terminal {
  readonly isTTY = true;
  readonly columns = 80;
  readonly rows = 24;
  writes = 0;
  lines: string[] = [];

  readonly write = (text: string): boolean => {
    this.writes++;
    const [, up, rest = text] = /^\u001b\[(\d+)A\r\u001b\[J([\s\S]*)$/.exec(text) ?? [];
    if (up !== undefined) this.lines.splice(-Number(up));
    this.lines.push(
      ...rest
        .replace(/\u001b\[\d+m/g, '')
        .split('\n')
        .slice(0, -1),
    );
    return true;
  };
}

const lastLine = 'Ctrl-C stops everything. Elsewhere: hostler status, tools, logs, why SERVER.'.slice(0, 79);

function begun(first: readonly StatusRow[]) {
  const clock = new FakeClock();
  const terminal = new Terminal();
  const screen = new UpScreen(clock, terminal, terminal.write);
  const world = { rows: first };
  screen.begin(() => world.rows);
  return { clock, terminal, screen, world };
}

test('servers are shown while their tools are read, then a summary; log lines are above', () => {
  const { clock, terminal, screen, world } = begun([row('a', 'connecting'), row('b', 'connecting')]);
  const [cut] = terminal.lines.slice(-1);
  expect(lastLine.startsWith(cut?.slice(0, -1) ?? 'x')).toBe(true);
  expect(terminal.lines.slice(0, -1)).toEqual([
    '  a  ◐ starting',
    '  b  ◐ starting',
    '',
    'learning the tools of 2 of 2 servers',
  ]);
  world.rows = [row('a', 'ready', { tools: 3 }), row('b', 'connecting')];
  screen.write('a line of the log\n');
  clock.advance(200);
  expect(terminal.lines.slice(0, -1)).toEqual([
    'a line of the log',
    '  a  ● ready     3 tools',
    '  b  ◐ starting',
    '',
    'learning the tools of 1 of 2 servers',
  ]);
  world.rows = [row('a', 'ready', { tools: 3 }), row('b', 'ready', { tools: 1 })];
  clock.advance(200);
  expect(terminal.lines.at(-2)).toBe('2 servers: 2 ready; 4 tools; 0 calls');
  const { writes } = terminal;
  clock.advance(10_000);
  expect(terminal.writes).toBe(writes);
  screen.end();
  screen.write('stopped\n');
  clock.advance(10_000);
  expect(terminal.lines).toEqual(['a line of the log', 'stopped']);
});

test('of many servers, those that need attention are shown', () => {
  const many = Array.from({ length: 50 }, (_, i) => row(`s${i}`, i === 7 ? 'parked' : 'ready', { tools: 1 }));
  expect(begun(many).terminal.lines.slice(0, -1)).toEqual([
    '  s7  ✗ parked  1 tool',
    '  … 49 more: hostler status',
    '',
    '50 servers: 49 ready, 1 parked; 50 tools; 0 calls',
  ]);
  const starting = Array.from({ length: 50 }, (_, i) => row(`s${i}`, 'connecting'));
  expect(begun(starting).terminal.lines.slice(11, -1)).toEqual([
    '  s11  ◐ starting',
    '  … 38 more: hostler status',
    '',
    'learning the tools of 50 of 50 servers',
  ]);
});

test('a blocked tool is shown with the command that approves it', () => {
  const notes = ['1 tool changed and blocked: hostler approve a'];
  expect(begun([row('a', 'ready', { tools: 1, changedTools: 1, notes })]).terminal.lines.slice(0, -1)).toEqual([
    '  a  ● ready  1 tool  1 tool changed and blocked: hostler approve a',
    '',
    '1 server: 1 ready; 1 tool; 0 calls',
    '! 1 server has tools that wait for approval: hostler approve',
  ]);
});
