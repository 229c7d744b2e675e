/** P2 to P6: misuse of its streams by a server, and the effect on the host. */
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { LIMITS } from '../../src/kernel/limits.js';
import { ChildProcesses } from '../../src/transports/stdio/child-processes.js';
import { openStdio } from '../../src/transports/stdio/stdio-channel.js';
import { responseFrame } from '../../src/wire/channel.js';
import { LineReader } from '../../src/wire/line-reader.js';
import { factsNow, hasProc, ownRssBytes } from '../real-table.js';
import { isLongTier, timeLimitMs } from '../tier.js';
import { carriers, fakes, stubServer, Talk, until, useBench } from './harness.js';

const bench = useBench();
const MiB = 1024 * 1024;
const perl = (script: string) => bench.open({ command: 'perl', args: ['-e', `$| = 1; ${script}`] });

describe('P2 stderr flood:', () => {
  test.each([
    ['64 MiB', 'for (1..1024) { syswrite STDERR, ("x" x 65535)."\\n" }'],
    ['100,000 single bytes', 'for (1..100000) { syswrite STDERR, $_ % 80 ? "x" : "\\n" }'],
  ])('%s, while every call is answered and little is stored', async (_name, flood) => {
    const rssBefore = ownRssBytes();
    let rssMax = rssBefore;
    const talk = await bench.open({ command: path.join(fakes, 'stdio-flood.pl'), args: [flood] });
    let calls = 0;
    let flooded = false;
    while (!flooded) {
      await talk.send().answered;
      calls++;
      rssMax = Math.max(rssMax, ownRssBytes());
      flooded = talk.messages.includes('{"flood":"over"}');
    }
    expect(calls).toBeGreaterThan(10);
    expect(Buffer.byteLength(talk.channel.describe().stderr.tail())).toBeLessThanOrEqual(LIMITS.stderrBytes);
    expect(rssMax - rssBefore).toBeLessThanOrEqual(16 * MiB);
  });
});

describe('P3 stdout flood:', () => {
  test('a line without end closes the channel and ends the server', async () => {
    const talk = await perl('my $x = "x" x 65536; while (1) { syswrite STDOUT, $x }');
    expect((await talk.whenClosed()).toJSON()).toMatchObject({
      code: 'result_too_large',
      reason: 'frame_too_large',
      limit: LIMITS.frameBytes,
    });
    await until(() => carriers(bench.keeper.instanceId).length === 0, 'the server is gone');
    await talk.channel.close();
    expect(talk.closed).toHaveLength(1);
  });

  test('a single byte costs as much at 8 MiB as at 1 KiB', () => {
    const byte = Buffer.from('x');
    const costUs = (bufferedBytes: number) => {
      const reader = new LineReader(
        LIMITS.frameBytes,
        () => {},
        () => {},
      );
      reader.push(Buffer.alloc(bufferedBytes, 0x78));
      const drips = 5_000;
      // CPU time, so that other processes do not count.
      const before = process.cpuUsage();
      for (let i = 0; i < drips; i++) reader.push(byte);
      const { user, system } = process.cpuUsage(before);
      return (user + system) / drips;
    };
    const bestOf3 = (bufferedBytes: number) => Math.min(...[1, 2, 3].map(() => costUs(bufferedBytes)));
    const [little, much] = [bestOf3(1_024), bestOf3(8 * MiB - 8_192)];
    // Copying 8 MiB takes 800 µs and more.
    expect(Math.max(little, much)).toBeLessThan(isLongTier ? 50 : 400);
    if (isLongTier) expect(much / little).toBeLessThanOrEqual(5);
  });
});

describe('P4 bad bytes:', () => {
  const message = (text: string) => `{"jsonrpc":"2.0","method":"m","params":{"t":"${text}"}}`;
  const say = (bytes: string) => perl(`print pack "H*", "${Buffer.from(bytes).toString('hex')}"`);

  test.each([
    ['logs between messages', `starting up\n${message('a')}\n[info] ok\n\n${message('b')}\n`, ['a', 'b'], 2],
    ['two messages in one write', `${message('a')}\n${message('b')}\n`, ['a', 'b'], 0],
    ['CRLF', `${message('a')}\r\n${message('b')}\r\n`, ['a', 'b'], 0],
    ['a byte-order mark', `\ufeff${message('a')}\n`, ['a'], 0],
    ['half a message, then the end', `${message('a')}\n{"jsonrpc":"2.0","meth`, ['a'], 1],
    ['a last message without its newline', `${message('a')}\n${message('b')}`, ['a', 'b'], 0],
    ['NUL', `\0\0\n${message('a')}\n`, ['a'], 1],
    ['U+2028 within a string', `${message('a\u2028b')}\n`, ['a\u2028b'], 0],
  ])('%s', async (_name, bytes, texts, junk) => {
    const talk = await say(bytes);
    expect((await talk.whenClosed()).toJSON()).toMatchObject({ reason: 'exit', exitCode: 0 });
    expect(talk.messages).toEqual(texts.map((text) => `{"t":"${text}"}`));
    expect(talk.channel.counters.junk).toBe(junk);
  });

  test('UTF-8 split at every offset', async () => {
    const text = message('é€😀');
    const bytes = Buffer.byteLength(text) + 1;
    const talk = await perl(
      `my $t = pack("H*", "${Buffer.from(`${text}\n`).toString('hex')}");` +
        'for my $i (1..length($t)-1) {' +
        'syswrite STDOUT, substr($t,0,$i); select undef,undef,undef,0.004; syswrite STDOUT, substr($t,$i) }',
    );
    await talk.whenClosed();
    expect(talk.messages).toEqual(Array(bytes - 1).fill('{"t":"é€😀"}'));
    expect(talk.channel.counters).toEqual({ junk: 0, repaired: 0, ambiguous: 0 });
  });

  test('a server that logs to stdout is called noisy', async () => {
    const talk = await perl('print "log $_\\n" for 1..21; sleep 1000');
    await until(() => talk.channel.counters.junk === 21, 'all lines were read');
    expect(talk.channel.describe().noisy).toBe(true);
  });
});

describe('P5 dead peer writes:', () => {
  const large = `"${'x'.repeat(4 * MiB - 200)}"`;

  test('a server that never reads fills the queue to its bound, and its death fails every frame at once', async () => {
    const talk = await bench.stub('--no-read');
    const accepted = [talk.send(large), talk.send(large), talk.send(large), talk.send(large)];
    expect(accepted.map(({ refused }) => refused)).toEqual([undefined, undefined, undefined, undefined]);
    expect(talk.send(large).refused?.toJSON()).toMatchObject({
      ...{ code: 'overloaded', reason: 'backpressure', limit: LIMITS.outboundBytes, retryable: true },
      ...{ actual: accepted.reduce((bytes, { frame }) => bytes + frame.bytes, 0), execution: 'not_executed' },
    });
    await until(() => accepted[0]?.frame.phase === 'writing', 'the first frame is being written');
    expect(talk.channel.withdraw(accepted[3]?.frame as never)).toBe('unsent');
    expect(talk.send(`"${'é'.repeat(2 * MiB + 1_024)}"`).refused?.code).toBe('overloaded');
    const { frame, refused } = talk.send(large);
    expect([refused, talk.channel.withdraw(frame)]).toEqual([undefined, 'unsent']);
    expect(talk.channel.withdraw(accepted[0]?.frame as never)).toBe('notify');
    const killedMs = performance.now();
    process.kill(talk.channel.describe().pid, 'SIGKILL');
    const error = await talk.whenClosed();
    expect(talk.failed.map(({ error: each }) => [each.details.phase, each.details.execution])).toEqual([
      ['queued', 'not_executed'],
      ['queued', 'not_executed'],
      ['writing', 'uncertain'],
    ]);
    for (const { atMs } of talk.failed) expect(atMs - killedMs).toBeLessThan(timeLimitMs(100));
    expect(error.toJSON()).toMatchObject({
      code: 'transport',
      reason: 'exit',
      signal: 'SIGKILL',
      execution: 'uncertain',
    });
    expect(talk.send().refused?.toJSON()).toMatchObject({ reason: 'exit', execution: 'not_executed', retryable: true });
  });

  test('a server that leaves 16 MiB of answers unread delays no request when it dies', async () => {
    const talk = await bench.stub('--no-read');
    const calls = [talk.send(), talk.send(large)];
    await until(() => calls[1]?.frame.phase === 'writing', 'the pipe is full');
    calls.push(talk.send(), talk.send());
    while (!talk.channel.send(responseFrame('1', 'result', '{}'))) {
      // Until the queue is full.
    }
    const before = process.cpuUsage();
    process.kill(talk.channel.describe().pid, 'SIGKILL');
    await talk.whenClosed();
    const { user, system } = process.cpuUsage(before);
    const exitMs = talk.channel.describe().exit?.atMs as number;
    expect(talk.failed.map(({ frame }) => frame.id)).toEqual([3, 4, 2]);
    expect(talk.failed[0]?.error).toBe(talk.failed[1]?.error);
    // Failing this many frames takes time: on a shared machine only the CPU time of this process counts.
    const workedMs = (user + system) / 1_000;
    for (const { atMs } of [...talk.failed, ...talk.closed.slice(0, 1)])
      expect(Math.min(atMs - exitMs, workedMs)).toBeLessThan(timeLimitMs(100));
  });

  test('when a server dies in the middle of a frame, that frame is uncertain and queued frames were not executed', async () => {
    const talk = await perl('sysread STDIN, my $b, 1 << 20; exit 5');
    talk.send(large);
    talk.send(large);
    const error = await talk.whenClosed();
    expect(error.toJSON()).toMatchObject({ reason: 'exit', exitCode: 5 });
    expect(talk.failed.map(({ frame, error: each }) => [frame.id, each.details.execution])).toEqual([
      [2, 'not_executed'],
      [1, 'uncertain'],
    ]);
    const exitMs = talk.channel.describe().exit?.atMs as number;
    for (const { atMs } of talk.failed) expect(atMs - exitMs).toBeLessThan(timeLimitMs(100));
  });

  test('a server that closes its input and lives is stopped', async () => {
    const talk = await perl('close STDIN; print qq({"jsonrpc":"2.0","method":"closed","params":{}}\\n); sleep 1000');
    await until(() => talk.messages.length === 1, 'its input is closed');
    const sentMs = performance.now();
    talk.send();
    expect((await talk.whenClosed()).toJSON()).toMatchObject({ code: 'transport', reason: 'stdin_closed' });
    expect(talk.failed).toHaveLength(1);
    expect((talk.failed[0]?.atMs as number) - sentMs).toBeLessThan(timeLimitMs(100));
    await until(() => carriers(bench.keeper.instanceId).length === 0, 'the server is gone');
  });

  test('a server that closes its output and lives is stopped', async () => {
    const talk = await bench.stub('--close-stdout', '--ignore-eof');
    expect((await talk.whenClosed()).toJSON()).toMatchObject({ code: 'transport', reason: 'stdout_closed' });
    await until(() => carriers(bench.keeper.instanceId).length === 0, 'the server is gone');
  });

  test('a frame that was answered before the end of its batch is not failed', async () => {
    // Reads the first frame of the batch, answers it, and dies with the second half read.
    const talk = await perl(
      'my $l = ""; sysread STDIN, $l, 40000, length $l until $l =~ /\\n/;' +
        'print qq({"jsonrpc":"2.0","id":1,"result":{}}\\n); exit 0',
    );
    const [first, second] = [talk.send(`"${'x'.repeat(30_000)}"`), talk.send(large)];
    await talk.whenClosed();
    await first.answered;
    expect(talk.messages).toEqual(['{}']);
    expect(talk.failed.map(({ frame }) => frame)).toEqual([second.frame]);
  });

  test('an answer that was in the pipe when the server died is delivered before the end is reported', async () => {
    const talk = await perl(
      'my $l = <STDIN>; print qq({"jsonrpc":"2.0","id":1,"result":{"big":"), "x" x 100000, qq("}}\\n); exit 0',
    );
    const call = talk.send();
    await talk.whenClosed();
    await call.answered;
    expect(talk.messages).toHaveLength(1);
    expect(talk.failed).toEqual([]);
  });
});

describe('P6 pipe held open:', () => {
  test('the end is reported 200 ms after the exit though a grandchild has the pipes open', async () => {
    const clock = new FakeClock();
    const children = new ChildProcesses({ clock, ambient: process.env });
    const args = [stubServer, '--grandchild', 'setsid', '--stderr', 'no key given\\n', '--exit', '4'];
    const spec = { server: 'stub', command: 'perl', args };
    const talk = new Talk(await openStdio(spec, { clock, cleanText: String, children }));
    const grandchildren = () => carriers(children.instanceId).filter((pid) => factsNow(pid)?.pgid === pid);
    await until(() => talk.channel.describe().exit !== undefined && grandchildren().length === 1, 'only it is left');
    clock.advance(199);
    expect(talk.closed).toEqual([]);
    clock.advance(1);
    expect(talk.closed).toHaveLength(1);
    for (const pid of grandchildren()) process.kill(pid, 'SIGKILL');
    await children.closeAll();
  });

  test('on the real clock the end is reported in time, with the last line on stderr', async () => {
    const talk = await bench.stub('--grandchild', 'setsid', '--stderr', 'no key given\\n', '--exit', '4');
    const error = await talk.whenClosed();
    const exitMs = talk.channel.describe().exit?.atMs as number;
    const afterMs = (talk.closed[0]?.atMs as number) - exitMs;
    expect(afterMs).toBeGreaterThanOrEqual(200);
    expect(afterMs).toBeLessThan(timeLimitMs(200 + 100));
    expect(error.message).toBe("server 'stub' exited with code 4; last line on stderr: no key given");
    await talk.channel.close();
    const { stop } = talk.channel.describe();
    // Its parent ended by itself, so only its mark identifies it.
    expect([stop?.escaped, stop?.escapedPids.length]).toEqual(hasProc ? [1, 1] : [0, 0]);
    for (const pid of carriers(bench.keeper.instanceId)) process.kill(pid, 'SIGKILL');
    await until(() => carriers(bench.keeper.instanceId).length === 0, 'the grandchild is gone');
  });

  test('E18 the crash of a Node server is reported with the error and its first stack line', async () => {
    const script = 'function connect() { throw new TypeError("no key given") }\nconnect()';
    const talk = await bench.open({ command: process.execPath, args: ['-e', script] });
    expect((await talk.whenClosed()).message).toBe(
      "server 'stub' exited with code 1; last line on stderr: TypeError: no key given at connect ([eval]:1:28)",
    );
    await talk.channel.close();
  });

  test('without another process on the pipes, the end is reported when they end', async () => {
    const talk = await bench.stub('--exit', '4');
    await talk.whenClosed();
    expect((talk.closed[0]?.atMs as number) - (talk.channel.describe().exit?.atMs as number)).toBeLessThan(
      timeLimitMs(150),
    );
  });
});
