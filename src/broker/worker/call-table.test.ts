import { beforeEach, describe, expect, test } from 'vitest';
import { HostError, isHostError } from '../../kernel/errors.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { errorReply, joined, manifestReply, requestDigest, resultReply } from '../messages.js';
import type { NewRequest, WorkerLink } from '../ports.js';
import { CallTable, type NewCall } from './call-table.js';
import { currentDialect } from './dialect.js';

class ScriptedLink implements WorkerLink {
  readonly me = { mailbox: 'w', role: undefined };
  readonly closed = new Promise<HostError | undefined>(() => {});
  readonly sent: NewRequest[] = [];
  readonly cancelled: string[] = [];
  readonly receipts: { resolve: () => void; reject: (error: unknown) => void }[] = [];
  send(request: NewRequest): Promise<void> {
    this.sent.push(request);
    return new Promise((resolve, reject) => void this.receipts.push({ resolve, reject }));
  }
  cancel(id: string): void {
    this.cancelled.push(id);
  }
  async close(): Promise<void> {}
}

let clock: FakeClock;
let table: CallTable;
let broken: unknown[];
let stale: number;

const make = (linkWaitMs?: number) => {
  clock = new FakeClock();
  broken = [];
  stale = 0;
  table = new CallTable({
    ...{ clock, dialect: currentDialect, linkWaitMs },
    broken: (link) => void broken.push(link),
    stale: () => void stale++,
  });
};
beforeEach(() => make());

const call = (callKey: string, changes: Partial<NewCall> = {}): NewCall => ({
  ...{ callKey, server: 's', tool: 't', args: '{}', bytes: 2, manifestRevision: 'r', trace: undefined },
  ...{ wantsProgress: false, isCallersKey: false },
  ...changes,
});

/** Starts one, and tells how it ended. */
function start(callKey: string, deadlineMs = 10_000, changes: Partial<NewCall> = {}) {
  const watch = { outcome: 'none', leave: () => {}, ends: 0 };
  watch.leave = table.start(call(callKey, changes), {
    deadlineAtMs: clock.nowMs() + deadlineMs,
    onProgress: undefined,
    done: (outcome) => {
      watch.ends++;
      if (!(outcome instanceof Error)) watch.outcome = outcome.bytes.toString();
      else if (isHostError(outcome)) watch.outcome = `${outcome.code} ${outcome.details.execution}`;
      else watch.outcome = outcome.message;
    },
  });
  return watch;
}

const reply = (text: string) => joined(...resultReply(Buffer.from(text), 'legacy'));
const settle = () => clock.advanceAsync(0);

describe('what is known of a call without a reply', () => {
  const notHeld = new HostError('transport', 'closed', { execution: 'not_executed' });
  const doubtful = new HostError('transport', 'closed', { execution: 'uncertain' });

  test.each([
    ['never sent', [], 'not_executed'],
    ['surely not held', [notHeld], 'not_executed'],
    ['surely not held, twice', [notHeld, notHeld], 'not_executed'],
    ['perhaps held', [doubtful], 'uncertain'],
    ['perhaps held, then surely not', [doubtful, notHeld], 'uncertain'],
    ['surely not held, then perhaps', [notHeld, doubtful], 'uncertain'],
  ])('%s: %s', async (_what, failures, execution) => {
    const watch = start('k');
    for (const error of failures) {
      const link = new ScriptedLink();
      table.use(link);
      link.receipts[0]?.reject(error);
      await settle();
      expect(broken.at(-1)).toBe(link);
      table.use(undefined);
    }
    await clock.advanceAsync(10_000);
    expect(watch.outcome).toBe(`timeout ${execution}`);
  });

  test('is doubt while its sending is under way', async () => {
    table.use(new ScriptedLink());
    const watch = start('k');
    watch.leave();
    expect(watch.outcome).toBe('cancelled uncertain');
  });
});

describe('a call', () => {
  test('ends once, whatever comes after', async () => {
    const link = new ScriptedLink();
    table.use(link);
    const watch = start('k');
    table.replied('k', reply('{"n":1}'));
    table.replied('k', reply('{"n":2}'));
    link.receipts[0]?.reject(new HostError('overloaded', 'full', { execution: 'not_executed' }));
    watch.leave();
    await clock.advanceAsync(60_000);
    expect([watch.outcome, watch.ends, table.dropped, link.cancelled]).toEqual(['{"n":1}', 1, 1, []]);
    expect(clock.pendingTimers).toBe(0);
  });

  test('goes over each new link once, with what is left of its time', async () => {
    const links = [new ScriptedLink(), new ScriptedLink()] as const;
    table.use(links[0]);
    start('k', 10_000);
    await clock.advanceAsync(2_500);
    table.use(undefined);
    table.use(links[1]);
    table.use(links[1]);
    expect(links.map(({ sent }) => sent.map(({ id, ttlMs }) => `${id} ${ttlMs}`))).toEqual([['k 10000'], ['k 7500']]);
    expect(JSON.parse(links[1].sent[0]?.body.toString() as string)).toMatchObject({ callKey: 'k', deadlineMs: 7_500 });
  });

  test('reads as it is sent then where its link sends it again, as long as somebody waits for it', async () => {
    const link = new ScriptedLink();
    table.use(link);
    const { leave } = start('k', 10_000);
    const [sent] = link.sent;
    expect(JSON.parse(sent?.body.toString() as string)).not.toHaveProperty('sentMsAgo');
    await clock.advanceAsync(5_500);
    const again = sent?.again?.();
    expect(again?.ttlMs).toBe(4_500);
    expect(JSON.parse(again?.body.toString() as string)).toMatchObject({ deadlineMs: 4_500, sentMsAgo: 5_500 });
    leave();
    expect(sent?.again?.()).toBeUndefined();
  });

  test('says how long ago it was first sent, of sendings that may have arrived', async () => {
    const saidOn = ({ sent }: ScriptedLink) => {
      const { sentMsAgo } = JSON.parse(sent[0]?.body.toString() as string) as { sentMsAgo?: number };
      return sentMsAgo;
    };
    const links = [new ScriptedLink(), new ScriptedLink(), new ScriptedLink()] as const;
    start('k', 10_000);
    table.use(links[0]);
    links[0].receipts[0]?.reject(new HostError('transport', 'closed', { execution: 'not_executed' }));
    await clock.advanceAsync(1_000);
    for (const link of links.slice(1)) {
      table.use(undefined);
      table.use(link);
      await clock.advanceAsync(2_500);
    }
    expect(links.map(saidOn)).toEqual([undefined, undefined, 2_500]);
  });

  const walls = [
    ['slept', 3_600_000, 3_601_000],
    ['slept for days', 72 * 3_600_000, 24 * 3_600_000],
    ['was set back', -3_600_000, 1_000],
  ] as const;
  test.each(walls)(
    'D-40 says how long ago it was first sent, though the machine %s meanwhile',
    async (_, wallMs, said) => {
      const links = [new ScriptedLink(), new ScriptedLink()] as const;
      table.use(links[0]);
      start('k', 10_000);
      await clock.advanceAsync(1_000);
      clock.jumpWall(wallMs);
      table.use(undefined);
      table.use(links[1]);
      expect(JSON.parse(links[1].sent[0]?.body.toString() as string)).toMatchObject({ sentMsAgo: said });
    },
  );

  test('that may be held is not given up because a later sending was refused', async () => {
    const links = [new ScriptedLink(), new ScriptedLink()] as const;
    table.use(links[0]);
    const watch = start('k');
    table.use(undefined);
    table.use(links[1]);
    links[1].receipts[0]?.reject(new HostError('overloaded', 'full', { execution: 'not_executed' }));
    await clock.advanceAsync(1_000);
    expect([watch.ends, links[1].sent.length]).toEqual([0, 2]);
    table.replied('k', reply('{}'));
    expect(watch.outcome).toBe('{}');
  });

  test('is answered with whatever mistake of ours a sending shows', async () => {
    const link = new ScriptedLink();
    table.use(link);
    const watch = start('k');
    link.receipts[0]?.reject(new TypeError('ours'));
    await settle();
    expect(watch.outcome).toBe('ours');
  });

  test.each([
    ['tool_not_found', 1],
    ['schema_changed', 1],
    ['denied', 1],
    ['overloaded', 0],
    ['tool_error', 0],
  ] as const)('that is answered with %s makes the manifest stale %i times', (code, times) => {
    table.use(new ScriptedLink());
    const watch = start('k');
    table.replied('k', joined(...errorReply(new HostError(code, 'no', { execution: 'not_executed' }))));
    expect([watch.outcome, stale]).toEqual([`${code} not_executed`, times]);
  });

  test('that is answered with a manifest is not answered', () => {
    table.use(new ScriptedLink());
    const watch = start('k');
    table.replied('k', manifestReply({ revision: 'r', tools: [] }));
    expect(watch.outcome).toBe('protocol_error uncertain');
  });

  test('waits for a link as long as was said, and anew when one is lost over it', async () => {
    make(15_000);
    const watch = start('k', 100_000);
    await clock.advanceAsync(14_000);
    const link = new ScriptedLink();
    table.use(link);
    link.receipts[0]?.reject(new HostError('transport', 'closed', { execution: 'not_executed' }));
    await settle();
    table.use(undefined);
    await clock.advanceAsync(14_999);
    expect(watch.outcome).toBe('none');
    await clock.advanceAsync(1);
    expect(watch.outcome).toBe('reconnecting not_executed');
  });
});

describe('cancels without a link', () => {
  test('wait for one, unless their request is over by then', async () => {
    table.use(new ScriptedLink());
    const [short, long, kept] = [start('short', 1_000), start('long', 9_000), start('kept', 9_000)];
    table.use(undefined);
    short.leave();
    long.leave();
    await clock.advanceAsync(2_000);
    const link = new ScriptedLink();
    table.use(link);
    expect([link.cancelled, link.sent.map(({ id }) => id), kept.outcome]).toEqual([['long'], ['kept'], 'none']);
  });

  test('are kept up to a bound', () => {
    table.use(new ScriptedLink());
    const calls = Array.from({ length: 2_000 }, (_, n) => start(`k${n}`));
    table.use(undefined);
    for (const { leave } of calls) leave();
    const link = new ScriptedLink();
    table.use(link);
    expect(link.cancelled).toHaveLength(1_024);
  });
});

test('places are given back, and there are no more than their bound', () => {
  const bytes = 40 * 1024 * 1024;
  const release = table.reserve(bytes);
  expect(() => table.reserve(bytes)).toThrow('bytes of arguments');
  release();
  const releases = Array.from({ length: 1_024 }, () => table.reserve(0));
  expect(() => table.reserve(0)).toThrow('1024 calls');
  for (const each of releases) each();
  expect([table.inFlight, table.inFlightBytes]).toEqual([0, 0]);
});

test('B11 the outcome of another call under the same key, which an earlier worker made, is no answer to this one', () => {
  const own = { server: 's', tool: 't', args: '{}' };
  const said = (of: string, isError: boolean) => {
    const error = new HostError('denied', 'no', { execution: 'not_executed' });
    return joined(...(isError ? errorReply(error, of) : resultReply(Buffer.from('{"a":1}'), 'legacy', of)));
  };
  const outcomeOf = (body: Buffer, changes: Partial<NewCall> = {}) => {
    make();
    const watch = start('k', 1_000, { isCallersKey: true, ...changes });
    table.replied('k', body);
    return watch.outcome;
  };
  for (const other of [{ server: 'x' }, { tool: 'x' }, { args: '{"a":1}' }])
    for (const isError of [false, true])
      expect(outcomeOf(said(requestDigest({ ...own, ...other }), isError))).toBe('key_conflict not_executed');
  expect(outcomeOf(said(requestDigest(own), false))).toBe('{"a":1}');
  expect(outcomeOf(said(requestDigest(own), true))).toBe('denied not_executed');
  // Of a host that does not say, and of a key that nobody else can have had.
  expect(outcomeOf(reply('{"b":1}'))).toBe('{"b":1}');
  expect(outcomeOf(said('other', false), { isCallersKey: false })).toBe('{"a":1}');
});
