import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { HostEvent, HostEventKind } from '../../host/host-events.js';
import { hostEventKinds } from '../../host/host-events.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { eventLine, loggedKinds } from '../output/event-line.js';
import { newLines, ServerLogs } from './server-logs.js';

class FakeHost {
  readonly listeners = new Map<string, (event: HostEvent) => void>();
  text: string | undefined = '';
  on(kind: HostEventKind | 'any', listener: (event: never) => void): () => void {
    this.listeners.set(kind, listener as (event: HostEvent) => void);
    return () => this.listeners.delete(kind);
  }
  stderr(): string | undefined {
    return this.text;
  }
  emit(event: Partial<HostEvent> & { kind: HostEventKind }): void {
    this.listeners.get(event.kind)?.({ atMs: 0, run: 1, ...event } as HostEvent);
  }
}

function open() {
  const host = new FakeHost();
  const clock = new FakeClock();
  const logs = new ServerLogs(host as never, clock, (text) => text.replace('hunter2', '[REDACTED]'));
  return { host, clock, logs };
}

const restart = (server: string, message: string) =>
  ({ kind: 'restart', server, delayMs: 100, restarts: 1, reason: { code: 'exit', message } }) as const;

test('all kinds of events are logged but records of calls and those that another one covers', () => {
  expect([...loggedKinds, 'proven', 'call'].sort()).toEqual([...hostEventKinds].sort());
});

test('the events of each server are stored, redacted, and then its stderr', () => {
  const { host, logs } = open();
  host.emit(restart('a', 'lost the password hunter2\u001b[2J'));
  host.emit(restart('b', 'other'));
  host.text = 'one\ntwo\nhalf a li';
  expect(logs.tail('a').map(({ from, text }) => [from, text])).toEqual([
    ['hostler', 'restart in 100ms: lost the password [REDACTED]\\u{1b}[2J'],
    ['stderr', 'one'],
    ['stderr', 'two'],
  ]);
});

test('at most 200 lines of each server', () => {
  const { host, logs } = open();
  for (let n = 0; n < 300; n++) host.emit(restart('a', `n${n}`));
  const lines = logs.tail('a');
  expect([lines.length, lines[0]?.text]).toEqual([200, 'restart in 100ms: n100']);
});

test('follow emits new lines in order, until the end', async () => {
  const { host, clock, logs } = open();
  host.text = 'old\n';
  const lines: string[] = [];
  const end = new AbortController();
  const over = logs.follow('a', ({ text }) => lines.push(text), end.signal);
  host.text = 'old\nnew\n';
  clock.advance(500);
  host.text = 'old\nnew\nlast words\n';
  host.emit(restart('a', 'exit 1'));
  host.emit(restart('b', 'not asked for'));
  host.text = 'of the next run\n';
  clock.advance(500);
  expect(lines).toEqual(['new', 'last words', 'restart in 100ms: exit 1', 'of the next run']);
  end.abort();
  await over;
  host.emit(restart('a', 'unheard'));
  expect([lines.length, clock.pendingTimers]).toEqual([4, 0]);
});

test.each([
  [[], ['a'], ['a']],
  [['a', 'b'], ['a', 'b', 'c'], ['c']],
  [['a', 'b', 'b'], ['b', 'b', 'c'], ['c']],
  [['a', 'b'], ['a', 'b'], []],
  [
    ['a', 'b'],
    ['x', 'y'],
    ['x', 'y'],
  ],
  [['a', 'b'], [], []],
])('after %j, %j has the new lines %j', (before, now, fresh) => {
  expect(newLines(before, now)).toEqual(fresh);
});

test('new lines are those after the longest overlap with the old ones, at the same cost for any text', () => {
  const lines = fc.array(fc.constantFrom('a', 'b'), { maxLength: 12 });
  const longestEnd = (before: string[], now: string[]) =>
    before.map((_, from) => before.slice(from)).find((end) => end.every((line, i) => line === now[i]))?.length ?? 0;
  fc.assert(
    fc.property(lines, lines, (before, now) => {
      expect(newLines(before, now)).toEqual(now.slice(longestEnd(before, now)));
    }),
  );
  // Lines whose comparisons are counted, each of which is nearly the same as all others.
  let comparisons = 0;
  const counted = (all: string[]) =>
    new Proxy(all, {
      get(target, key) {
        comparisons++;
        return Reflect.get(target, key);
      },
    });
  const many = 5_000;
  newLines(counted([...Array<string>(many - 1).fill('a'), 'b']), counted(Array<string>(many).fill('a')));
  expect(comparisons).toBeLessThan(20 * many);
});

test('names and messages of others stay on their line', () => {
  const line = eventLine({ kind: 'schema', atMs: 0, server: 'a', tool: 'x\ny', status: 'changed' } as HostEvent);
  expect(line).toEqual({ level: 'warn', text: 'tool x\\ny is changed; compare and approve it: hostler approve a' });
});
