import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { HostEvent, HostEventKind } from '../../host/host-events.js';
import { hostEventKinds } from '../../host/host-events.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { eventLine, loggedKinds } from '../output/event-line.js';
import { type LogLine, newLines, ServerLogs } from './server-logs.js';

class FakeHost {
  readonly listeners = new Map<string, (event: HostEvent) => void>();
  text = '';
  /** When the lines arrived, by server and text; 0 if not given. */
  atMs: Readonly<Record<string, number>> = {};
  on(kind: HostEventKind | 'any', listener: (event: never) => void): () => void {
    this.listeners.set(kind, listener as (event: HostEvent) => void);
    return () => this.listeners.delete(kind);
  }
  servers: readonly string[] = [];
  /** True: no process runs, so an incomplete line is shown. */
  isEnded = false;
  names = () => [...this.servers];
  stderrLines(server: string) {
    const lines = this.text.split('\n');
    if (!this.isEnded || lines.at(-1) === '') lines.pop();
    return lines.map((text) => ({ text, atMs: this.atMs[`${server} ${text}`] ?? 0 }));
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

test('all kinds of events are logged except records of calls and events that another event covers', () => {
  expect([...loggedKinds, 'proven', 'call'].sort()).toEqual([...hostEventKinds].sort());
});

test('the events of each server are stored, redacted, and shown after its stderr of the same time', () => {
  const { host, logs } = open();
  host.emit(restart('a', 'lost the password hunter2\u001b[2J'));
  host.emit(restart('b', 'other'));
  host.text = 'one\ntwo\n';
  expect(logs.tail(['a']).map(({ from, text }) => [from, text])).toEqual([
    ['stderr', 'one'],
    ['stderr', 'two'],
    ['hostler', 'restart in 100ms: lost the password [REDACTED]\\u{1b}[2J'],
  ]);
});

test('D-34 of consecutive equal failures of a parked server, the first and the last are stored', () => {
  const { host, logs } = open();
  const failed = (repeats: number, message = 'refused') => {
    const from = repeats === 0 ? 'backing_off' : 'parked';
    host.emit({ kind: 'state', server: 'a', run: repeats, from, to: 'connecting' });
    host.emit({ kind: 'state', server: 'a', run: repeats, from: 'connecting', to: 'parked' });
    const reason = { code: 'connect_failed', message } as const;
    host.emit({ kind: 'parked', server: 'a', repeats, reason, nextProbeAtMs: 15_000 });
  };
  host.emit(restart('a', 'first cause'));
  for (let repeats = 0; repeats <= 1_000; repeats++) failed(repeats);
  const texts = () => logs.tail(['a']).map(({ text }) => text);
  expect(texts()).toEqual([
    'restart in 100ms: first cause',
    'restarting → starting (run 0)',
    'starting → parked (run 0)',
    'parked: refused; next try in 15s',
    'parked → starting (run 1000)',
    'starting → parked (run 1000)',
    'parked: refused; next try in 15s',
  ]);
  host.emit(restart('a', 'lost'));
  failed(0, 'unknown host');
  expect(texts().slice(6)).toEqual([
    'parked: refused; next try in 15s',
    'restart in 100ms: lost',
    'restarting → starting (run 0)',
    'starting → parked (run 0)',
    'parked: unknown host; next try in 15s',
  ]);
});

test('lines of stderr have the time at which they arrived, so --since and --tail choose the newest lines of all servers', () => {
  const { host, clock, logs } = open();
  const startMs = clock.date().getTime();
  const hourMs = 3_600_000;
  host.text = 'old\nnew\n';
  host.atMs = { 'a old': startMs, 'b old': startMs, 'a new': startMs + hourMs, 'b new': startMs + 3 * hourMs };
  clock.advance(2 * hourMs);
  host.emit(restart('a', 'exit 1'));
  clock.advance(8 * hourMs);
  const iso = (hours: number) => new Date(startMs + hours * hourMs).toISOString();
  const shown = (...words: Parameters<ServerLogs['tail']>) =>
    logs.tail(...words).map(({ at, server, text }) => [at, server, text]);
  const all = [
    [iso(0), 'a', 'old'],
    [iso(0), 'b', 'old'],
    [iso(1), 'a', 'new'],
    [iso(2), 'a', 'restart in 100ms: exit 1'],
    [iso(3), 'b', 'new'],
  ];
  expect(shown(['a', 'b'])).toEqual(all);
  expect(shown(['a', 'b'], iso(2))).toEqual(all.slice(3));
  expect(shown(['a', 'b'], undefined, 2)).toEqual(all.slice(3));
  expect(shown(['a'], iso(4))).toEqual([]);
  expect(shown(['a'], undefined, 1)).toEqual([[iso(2), 'a', 'restart in 100ms: exit 1']]);
});

test('a last line without a newline is in the tail and is followed when the process has ended', () => {
  const { host, clock, logs } = open();
  host.text = 'starting\nfatal: no k';
  expect(logs.tail(['a']).map(({ text }) => text)).toEqual(['starting']);
  const lines: string[] = [];
  const end = new AbortController();
  void logs.follow('a', ({ text }) => lines.push(text), end.signal);
  host.text = 'starting\nfatal: no key';
  clock.advance(500);
  expect(lines).toEqual([]);
  host.isEnded = true;
  clock.advance(500);
  expect(lines).toEqual(['fatal: no key']);
  expect(logs.tail(['a']).map(({ text }) => text)).toEqual(['starting', 'fatal: no key']);
  end.abort();
});

test('without a name, follow emits the lines of all servers, also of those that are added later', () => {
  const { host, clock, logs } = open();
  const lines: string[] = [];
  const end = new AbortController();
  void logs.follow(undefined, ({ server, text }) => lines.push(`${server} ${text}`), end.signal);
  host.text = 'began\n';
  clock.advance(500);
  expect(lines).toEqual([]);
  host.servers = ['a'];
  clock.advance(500);
  host.emit(restart('b', 'exit 1'));
  expect(lines).toEqual(['a began', 'b began', 'b restart in 100ms: exit 1']);
  host.servers = ['a', 'b'];
  host.text = 'began\nmore\n';
  clock.advance(500);
  expect(lines.slice(3)).toEqual(['a more', 'b more']);
  end.abort();
  expect(clock.pendingTimers).toBe(0);
});

test('at most 200 lines of each server are stored', () => {
  const { host, logs } = open();
  for (let n = 0; n < 300; n++) host.emit(restart('a', `n${n}`));
  const lines = logs.tail(['a']);
  expect([lines.length, lines[0]?.text]).toEqual([200, 'restart in 100ms: n100']);
});

test('follow emits new lines in order, until the end', async () => {
  const { host, clock, logs } = open();
  host.text = 'old\n';
  const lines: string[] = [];
  const times: string[] = [];
  const end = new AbortController();
  const onLine = ({ text, at }: LogLine) => {
    lines.push(text);
    times.push(at);
  };
  const over = logs.follow('a', onLine, end.signal);
  host.text = 'old\nnew\n';
  host.atMs = { 'a new': 1_700_000_000_000 };
  clock.advance(500);
  expect(times).toEqual(['2023-11-14T22:13:20.000Z']);
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
  // Nearly equal lines. Comparisons of them are counted.
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

test('names and messages from outside stay on their line', () => {
  const line = eventLine({ kind: 'schema', atMs: 0, server: 'a', tool: 'x\ny', status: 'changed' } as HostEvent);
  expect(line).toEqual({ level: 'warn', text: 'tool x\\ny is changed; compare and approve it: hostler approve a' });
});
