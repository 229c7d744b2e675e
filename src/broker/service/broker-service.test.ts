import { describe, expect, test } from 'vitest';
import { type FakeCall, FakeUpstreams } from '../../../test/fakes/fake-upstreams.js';
import { MemoryBroker } from '../../../test/fakes/memory-broker.js';
import { MemoryJournal } from '../../../test/fakes/memory-journal.js';
import { Cancellation } from '../../kernel/cancel-signal.js';
import { HostError } from '../../kernel/errors.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import {
  type CallRequest,
  callRequest,
  manifestRequest,
  type News,
  type Reply,
  readNews,
  readReply,
} from '../messages.js';
import type { WorkerLink } from '../ports.js';
import { BrokerService, type BrokerServiceOptions } from './broker-service.js';
import type { ServiceEvent } from './service-events.js';

const never = new Cancellation();

/** A worker that only sends and writes down: what the executor does with it is tested with the executor. */
class Worker {
  readonly replies: { id: string; reply: Reply }[] = [];
  readonly news: News[] = [];
  link: WorkerLink | undefined;
  #next = 0;

  async open(broker: MemoryBroker, mailbox: string, role: string | undefined): Promise<this> {
    this.link = await broker.openWorker({ mailbox, role })(
      {
        replied: (id, body) => this.replies.push({ id, reply: readReply(body) }),
        told: (body) => {
          const news = readNews(body);
          if (news) this.news.push(news);
        },
      },
      never,
    );
    return this;
  }

  async call(tool: string, args: unknown = {}, more: Partial<CallRequest> = {}): Promise<string> {
    const callKey = more.callKey ?? `k${this.#next++}`;
    const deadlineMs = more.deadlineMs ?? 10_000;
    const request = {
      server: undefined,
      manifestRevision: undefined,
      trace: undefined,
      wantsProgress: false,
      isCallersKey: false,
      ...more,
    };
    const body = callRequest({ ...request, callKey, deadlineMs, tool, args: JSON.stringify(args) });
    await this.link?.send({ id: callKey, body, ttlMs: deadlineMs });
    return callKey;
  }

  replyTo(id: string): Reply | undefined {
    return this.replies.find((each) => each.id === id)?.reply;
  }

  errorOf(id: string): HostError {
    const reply = this.replyTo(id);
    if (reply?.kind !== 'error') throw new Error(`the reply to ${id} is ${reply?.kind}`);
    return reply.error;
  }

  async tools(): Promise<string[]> {
    const id = `m${this.#next++}`;
    await this.link?.send({ id, body: manifestRequest(), ttlMs: 10_000 });
    await settled();
    const reply = this.replyTo(id);
    if (reply?.kind !== 'manifest') throw new Error(`the reply is ${reply?.kind}`);
    return reply.manifest.tools.map(({ name }) => name);
  }
}

const settled = async () => {
  for (let i = 0; i < 50; i++) await Promise.resolve();
};

async function setUp(options: Partial<BrokerServiceOptions> = {}) {
  const clock = new FakeClock();
  const broker = new MemoryBroker(clock, { window: 10_000 });
  const journal = new MemoryJournal();
  const host = new FakeUpstreams({ nova: { tools: ['fetch_url', 'nova_click', 'nova_screenshot'] } });
  host.allow(({ role }, _, tool) => {
    if (role === 'researcher') return tool === undefined || tool === 'fetch_url';
    return role !== 'sandbox';
  });
  const events: ServiceEvent[] = [];
  const service = new BrokerService({
    ...{ host, journal, clock, onEvent: (event) => events.push(event) },
    isRolelessAllowed: () => true,
    ...options,
  });
  const connect = async () => service.attach(await broker.openHost(service, never));
  await connect();
  const worker = (mailbox: string, role: string | null = 'operator') =>
    new Worker().open(broker, mailbox, role ?? undefined);
  /** Calls wait until they are let go, in any order. */
  const held: { call: FakeCall; done: (text?: string) => void; fail: (error: HostError) => void }[] = [];
  const hold = () => {
    host.onCall = (call) =>
      new Promise((resolve, reject) => {
        held.push({ call, done: (text = '{"content":[]}') => resolve(text), fail: reject });
      });
  };
  return { clock, broker, journal, host, service, events, connect, worker, held, hold };
}

describe('what a role sees', () => {
  test('AC-P1 a listed role sees what it may use; an unlisted one, and none, everything', async () => {
    const { worker } = await setUp();
    expect(await (await worker('r', 'researcher')).tools()).toEqual(['fetch_url']);
    expect(await (await worker('o', 'operator')).tools()).toHaveLength(3);
    expect(await (await worker('n', null)).tools()).toHaveLength(3);
  });

  test('AC-P2 what a role may not use is not called, and the refusal names it', async () => {
    const { worker, host } = await setUp();
    const researcher = await worker('r', 'researcher');
    const denied = await researcher.call('nova_screenshot');
    const allowed = await researcher.call('fetch_url');
    const nobody = await worker('n', null);
    const roleless = await nobody.call('nova_screenshot');
    await settled();
    expect(researcher.errorOf(denied)).toMatchObject({ code: 'denied', details: { execution: 'not_executed' } });
    expect(researcher.errorOf(denied).message).toMatch(/nova_screenshot.*not allowed.*researcher/);
    expect(researcher.replyTo(allowed)?.kind).toBe('result');
    expect(nobody.replyTo(roleless)?.kind).toBe('result');
    expect(host.calls.map(({ tool }) => tool)).toEqual(['fetch_url', 'nova_screenshot']);
  });

  test('AC-P3 a role with nothing sees nothing', async () => {
    const { worker } = await setUp();
    expect(await (await worker('s', 'sandbox')).tools()).toEqual([]);
  });

  test('D-46 without a role nothing is seen and nothing runs, unless that was asked for', async () => {
    const { worker, host, journal } = await setUp({ isRolelessAllowed: () => false });
    const nobody = await worker('n', null);
    expect(await nobody.tools()).toEqual([]);
    const id = await nobody.call('fetch_url', {}, { server: 'nova' });
    await settled();
    expect(nobody.errorOf(id).message).toContain('<none>');
    expect([host.calls, journal.asked]).toEqual([[], []]);
  });

  test('D-46 the role is that of the sender, whatever stands in the body', async () => {
    const { broker, worker, host } = await setUp();
    const researcher = await worker('r', 'researcher');
    const body =
      '{"v":1,"op":"call","callKey":"k","deadlineMs":1000,"tool":"nova_click","arguments":{},"role":"operator","from":{"mailbox":"o","role":"operator"}}';
    await researcher.link?.send({ id: 'k', body: Buffer.from(body), ttlMs: 1_000 });
    await settled();
    expect(researcher.errorOf('k').code).toBe('denied');
    expect([host.calls.length, broker.owed]).toEqual([0, 0]);
  });

  test('AC-X4 a changed role counts from the next call on, and its workers are told', async () => {
    const { clock, worker, host } = await setUp();
    const researcher = await worker('r', 'researcher');
    const before = await researcher.tools();
    host.allow(({ role }) => role !== 'researcher');
    host.set('nova', { tools: ['fetch_url', 'nova_click', 'nova_screenshot'] });
    const id = await researcher.call('fetch_url');
    await clock.advanceAsync(50);
    expect(before).toEqual(['fetch_url']);
    expect(researcher.errorOf(id).code).toBe('denied');
    expect(researcher.news).toContainEqual({ kind: 'manifest_changed', revision: expect.any(String) });
    expect(await researcher.tools()).toEqual([]);
  });

  test('D-58 a manifest is made once for a role and a state of things, and a server that restarts tells nobody', async () => {
    const { clock, worker, host } = await setUp();
    const operator = await worker('o');
    let asked = 0;
    host.allow(() => {
      asked++;
      return true;
    });
    await operator.tools();
    await operator.tools();
    await operator.tools();
    expect(asked).toBe(3);
    host.setState('nova', 'backing_off');
    host.setState('nova', 'ready');
    await clock.advanceAsync(50);
    expect(operator.news).toEqual([]);
    host.set('nova', { tools: ['fetch_url'] });
    await clock.advanceAsync(50);
    expect(operator.news).toHaveLength(1);
  });

  test('D-58 a list waits for servers that nobody has seen yet', async () => {
    const { worker, host } = await setUp();
    let seen = () => {};
    host.sight = new Promise<void>((resolve) => {
      seen = resolve;
    });
    host.set('late', { capabilities: null });
    const operator = await worker('o');
    const listing = operator.link?.send({ id: 'm', body: manifestRequest(), ttlMs: 10_000 });
    await listing;
    await settled();
    expect(operator.replyTo('m')).toBeUndefined();
    host.set('late', { tools: ['late_tool'] });
    seen();
    await settled();
    expect(operator.replyTo('m')).toMatchObject({ manifest: { tools: [{}, {}, {}, { name: 'late_tool' }] } });
  });
});

describe('one call', () => {
  test('AC-P5 each of eight at once gets the answer to its own arguments', async () => {
    const { worker, host } = await setUp();
    host.onCall = ({ args }) => JSON.stringify({ content: [], structuredContent: JSON.parse(args) });
    const operator = await worker('o');
    const ids = await Promise.all(Array.from({ length: 8 }, (_, mark) => operator.call('nova_click', { mark })));
    await settled();
    const marks = ids.map((id) => {
      const reply = operator.replyTo(id);
      return reply?.kind === 'result' ? JSON.parse(reply.bytes.toString()).structuredContent.mark : undefined;
    });
    expect(marks).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  });

  test('AC-P6 four at once are four at once', async () => {
    const { worker, held, hold } = await setUp();
    hold();
    const operator = await worker('o');
    for (let i = 0; i < 4; i++) await operator.call('nova_click');
    await settled();
    expect(held).toHaveLength(4);
  });

  test('D-49 D-55 arguments and results go through to the digit', async () => {
    const { worker, host } = await setUp();
    const result =
      '{"content":[{"type":"image","data":"aGk=","mimeType":"image/png"}],"structuredContent":{"big":9007199254740993},"isError":true,"_meta":{"x":1.0}}';
    host.onCall = () => result;
    const operator = await worker('o');
    const body =
      '{"v":1,"op":"call","callKey":"k","deadlineMs":1000,"tool":"nova_click","arguments":{"n":12345678901234567890}}';
    await operator.link?.send({ id: 'k', body: Buffer.from(body), ttlMs: 1_000 });
    await settled();
    expect(host.calls[0]?.args).toBe('{"n":12345678901234567890}');
    expect(operator.replyTo('k')).toMatchObject({ kind: 'result', bytes: Buffer.from(result) });
  });

  test.each([
    ['no object as arguments', '"arguments":"{}"', 'arguments'],
    ['no arguments', '"x":1', 'arguments'],
    ['arguments twice', '"arguments":{},"arguments":{}', 'twice'],
    ['another version', '"arguments":{},"v":2', 'twice'],
  ])('D-55 %s: refused, nothing runs, the rest goes on', async (_, text, said) => {
    const { worker, host, broker, journal } = await setUp();
    const operator = await worker('o');
    const body = `{"v":1,"op":"call","callKey":"k","deadlineMs":1000,"tool":"nova_click",${text}}`;
    await operator.link?.send({ id: 'k', body: Buffer.from(body), ttlMs: 1_000 });
    await settled();
    expect(operator.errorOf('k')).toMatchObject({ code: 'invalid_request', details: { execution: 'not_executed' } });
    expect(operator.errorOf('k').message).toContain(said);
    expect([host.calls, journal.asked, broker.owed]).toEqual([[], [], 0]);
  });

  test('a key that is not the id of its message is refused', async () => {
    const { worker, host } = await setUp();
    const operator = await worker('o');
    const body = '{"v":1,"op":"call","callKey":"other","deadlineMs":1000,"tool":"nova_click","arguments":{}}';
    await operator.link?.send({ id: 'k', body: Buffer.from(body), ttlMs: 1_000 });
    await settled();
    expect([operator.errorOf('k').code, host.calls]).toEqual(['invalid_request', []]);
  });

  test('the order is claim, run, journal, reply, acknowledge', async () => {
    const { worker, journal, host, broker } = await setUp();
    const operator = await worker('o');
    host.onCall = () => {
      expect(journal.asked).toEqual(['claim k0']);
      return '{"content":[]}';
    };
    broker.holdsReplies = true;
    const id = await operator.call('nova_click');
    await settled();
    expect(journal.asked).toEqual([`claim ${id}`, `finish ${id}`]);
    expect([broker.heldReplies, broker.owed]).toEqual([1, 0]);
  });

  test('progress reaches whoever asked for it, and nobody else', async () => {
    const { worker, host } = await setUp();
    host.onCall = ({ options }) => {
      options.onProgress?.(Buffer.from('{"progress":1}'));
      return '{"content":[]}';
    };
    const operator = await worker('o');
    const id = await operator.call('nova_click', {}, { wantsProgress: true });
    await operator.call('nova_click');
    await settled();
    expect(operator.news).toEqual([{ kind: 'progress', callKey: id, params: Buffer.from('{"progress":1}') }]);
  });

  test('progress that is larger than news may be is left out, and the call goes on', async () => {
    const { worker, host } = await setUp();
    const ofSize = (bytes: number) => Buffer.from(`{"message":"${'x'.repeat(bytes - 14)}"}`);
    host.onCall = ({ options }) => {
      for (const bytes of [64 * 1024, 64 * 1024 + 1]) options.onProgress?.(ofSize(bytes));
      return '{"content":[]}';
    };
    const operator = await worker('o');
    await operator.call('nova_click', {}, { wantsProgress: true });
    await settled();
    expect(operator.news).toMatchObject([{ kind: 'progress', params: ofSize(64 * 1024) }]);
    expect(operator.news).toHaveLength(1);
  });

  test('a result too large for one message is an error that says so', async () => {
    const { worker, host } = await setUp();
    host.onCall = () => `{"content":[{"type":"text","text":"${'x'.repeat(4 * 1024 * 1024)}"}]}`;
    const operator = await worker('o');
    const id = await operator.call('nova_click');
    await settled();
    expect(operator.errorOf(id)).toMatchObject({ code: 'result_too_large', details: { execution: 'uncertain' } });
  });

  test('the trace of the caller goes along', async () => {
    const { worker, host } = await setUp();
    const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
    await (await worker('o')).call('nova_click', {}, { trace: { traceparent, tracestate: 'x=1' } });
    await settled();
    expect(JSON.parse(`{${host.calls[0]?.options.meta}}`)).toEqual({ traceparent, tracestate: 'x=1' });
  });
});

describe('at most once', () => {
  test('D-40 a request that comes again while it runs gets the one outcome', async () => {
    const { worker, host, held, hold, broker, connect, service } = await setUp();
    hold();
    const operator = await worker('o');
    const id = await operator.call('nova_click');
    await settled();
    broker.cut('host');
    service.detach(undefined, 0);
    await connect();
    await settled();
    held[0]?.done();
    await settled();
    expect([host.calls.length, operator.replyTo(id)?.kind, broker.owed]).toEqual([1, 'result', 0]);
    expect(service.status()).toMatchObject({ repeated: 1, running: 0 });
  });

  test('D-40 one that ran and whose reply was lost is answered from the journal', async () => {
    const { worker, host, held, hold, broker, connect } = await setUp();
    hold();
    const operator = await worker('o');
    const id = await operator.call('nova_click');
    await settled();
    broker.cut('host');
    held[0]?.done('{"content":[],"structuredContent":{"a":1}}');
    await settled();
    expect(operator.replyTo(id)).toBeUndefined();
    await connect();
    await settled();
    expect(operator.replyTo(id)).toMatchObject({ kind: 'result' });
    expect([host.calls.length, broker.owed]).toEqual([1, 0]);
  });

  test('D-40 one whose host died over it is answered as uncertain and not run', async () => {
    const { worker, host, hold, broker, journal, clock } = await setUp();
    hold();
    const operator = await worker('o');
    const id = await operator.call('nova_click');
    await settled();
    broker.cut('host');
    journal.restart();
    const next = new BrokerService({ host, journal, clock, isRolelessAllowed: () => true });
    next.attach(await broker.openHost(next, never));
    await settled();
    expect(operator.errorOf(id)).toMatchObject({ code: 'outcome_uncertain', details: { execution: 'uncertain' } });
    expect([host.calls.length, broker.owed]).toEqual([1, 0]);
  });

  test('D-40 a tool that may be repeated is run again by the next host', async () => {
    const { worker, host, hold, held, broker, journal, clock } = await setUp();
    host.repeatable.add('nova/nova_click');
    hold();
    const operator = await worker('o');
    const id = await operator.call('nova_click');
    await settled();
    broker.cut('host');
    journal.restart();
    const next = new BrokerService({ host, journal, clock, isRolelessAllowed: () => true });
    next.attach(await broker.openHost(next, never));
    await settled();
    held[1]?.done();
    await settled();
    expect([host.calls.length, operator.replyTo(id)?.kind]).toEqual([2, 'result']);
  });

  test('B11 the same key with other arguments is refused', async () => {
    const { worker, host } = await setUp();
    const operator = await worker('o');
    await operator.call('nova_click', { a: 1 }, { callKey: 'same' });
    await settled();
    const [first] = operator.replies.splice(0);
    await operator.call('nova_click', { a: 1 }, { callKey: 'same' });
    await settled();
    expect(operator.replies.splice(0)).toEqual([first]);
    await operator.call('nova_click', { a: 2 }, { callKey: 'same' });
    await settled();
    expect([operator.errorOf('same').code, host.calls.length]).toEqual(['key_conflict', 1]);
  });

  test('the same key of another worker is another key', async () => {
    const { worker, host } = await setUp();
    await (await worker('a')).call('nova_click', {}, { callKey: 'same' });
    await (await worker('b')).call('nova_click', {}, { callKey: 'same' });
    await settled();
    expect(host.calls).toHaveLength(2);
  });

  test('who was told that its call did not run can rely on it, also when the request comes once more', async () => {
    const { worker, host } = await setUp();
    const operator = await worker('o');
    host.onCall = () => {
      throw new HostError('circuit_open', 'not now', { execution: 'not_executed', retryAfterMs: 1 });
    };
    await operator.call('nova_click', {}, { callKey: 'mine' });
    await settled();
    const [told] = operator.replies.splice(0);
    host.onCall = () => '{"content":[]}';
    await operator.call('nova_click', {}, { callKey: 'mine' });
    await settled();
    expect(operator.errorOf('mine')).toMatchObject({ code: 'circuit_open', details: { execution: 'not_executed' } });
    expect([operator.replies, host.calls.length]).toEqual([[told], 1]);
  });

  test('a journal that cannot promise anything runs nothing', async () => {
    const { worker, host, journal, broker } = await setUp();
    const operator = await worker('o');
    journal.refuseNextClaim = new HostError('insufficient_storage', 'the disk is full', { execution: 'not_executed' });
    const id = await operator.call('nova_click');
    await settled();
    expect([operator.errorOf(id).code, host.calls.length, broker.owed]).toEqual(['insufficient_storage', 0, 0]);
  });

  test('D-42 a request whose time is over is answered and not run', async () => {
    const { worker, host, broker, clock, connect, events, journal } = await setUp();
    const operator = await worker('o');
    broker.cut('host');
    const id = await operator.call('nova_click', {}, { deadlineMs: 5_000 });
    await clock.advanceAsync(3_600_000);
    await connect();
    await settled();
    expect(operator.errorOf(id)).toMatchObject({ code: 'expired', details: { execution: 'not_executed' } });
    expect([host.calls, journal.asked, broker.owed]).toEqual([[], [], 0]);
    expect(events).toContainEqual(expect.objectContaining({ kind: 'expired', callKey: id }));
  });

  test('D-42 what is left of the time is what the call gets', async () => {
    const { worker, host, broker, clock, connect } = await setUp();
    const operator = await worker('o');
    broker.cut('host');
    await operator.call('nova_click', {}, { deadlineMs: 5_000 });
    await clock.advanceAsync(3_000);
    await connect();
    await settled();
    expect(host.calls[0]?.options.deadlineMs).toBe(2_000);
  });
});

describe('one worker and the others', () => {
  test('D-43 a reply that cannot be held is told, acknowledged, and the service goes on', async () => {
    const { worker, broker, events, host } = await setUp();
    const [a, b] = [await worker('a'), await worker('b')];
    broker.refuseNextReply(new HostError('overloaded', 'the mailbox is full', { reason: 'mailbox_full' }));
    const lost = await a.call('nova_click', {}, { callKey: 'lost' });
    const fine = await b.call('nova_click');
    await settled();
    expect(b.replyTo(fine)?.kind).toBe('result');
    expect(events).toContainEqual(expect.objectContaining({ kind: 'undeliverable', callKey: lost }));
    expect(broker.owed).toBe(0);
    // It is in the journal: asked for again, it is there, and nothing runs.
    await a.call('nova_click', {}, { callKey: 'lost' });
    await settled();
    expect([a.replyTo('lost')?.kind, host.calls.length]).toEqual(['result', 2]);
  });

  test('D-44 one that sends 10,000 does not hold up one that sends one; past the bound it is told', async () => {
    const { worker, host, held, hold } = await setUp({ limits: { running: 2, runningOfOne: 2, waitingOfOne: 100 } });
    hold();
    const [flood, calm] = [await worker('flood'), await worker('calm')];
    for (let i = 0; i < 10_000; i++) await flood.call('nova_click');
    await calm.call('fetch_url');
    await settled();
    expect(flood.replies).toHaveLength(10_000 - 102);
    expect(flood.errorOf('k5000')).toMatchObject({ code: 'overloaded', retryable: true });
    held[0]?.done();
    await settled();
    held[1]?.done();
    await settled();
    expect(host.calls.slice(0, 4).map(({ tool }) => tool)).toContain('fetch_url');
  });

  test('D-45 a cancel reaches the running call, and the queued one is not begun', async () => {
    const { worker, host, hold } = await setUp({ limits: { running: 1 } });
    const operator = await worker('o');
    hold();
    host.onCall = ({ options }) =>
      new Promise((_, reject) => {
        options.signal?.addEventListener('abort', () =>
          reject(new HostError('cancelled', 'cancelled', { execution: 'uncertain' })),
        );
      });
    const [running, queued] = [await operator.call('nova_click'), await operator.call('nova_click')];
    await settled();
    operator.link?.cancel(queued);
    operator.link?.cancel(running);
    await settled();
    expect(operator.errorOf(running)).toMatchObject({ code: 'cancelled', details: { execution: 'uncertain' } });
    expect(operator.errorOf(queued)).toMatchObject({ code: 'cancelled', details: { execution: 'not_executed' } });
    expect(host.calls).toHaveLength(1);
  });

  test('D-45 a cancel that overtakes its request counts', async () => {
    const { worker, host, broker } = await setUp();
    const operator = await worker('o');
    operator.link?.cancel('early');
    await settled();
    await operator.call('nova_click', {}, { callKey: 'early' });
    await settled();
    expect([operator.errorOf('early').code, host.calls.length, broker.owed]).toEqual(['cancelled', 0, 0]);
  });

  test('a stop waits for what runs, begins nothing that waits or comes, and leaves that owed', async () => {
    const { worker, host, broker, service, held, hold } = await setUp({ limits: { running: 1 } });
    hold();
    const operator = await worker('o');
    const [running, waiting] = [await operator.call('nova_click'), await operator.call('nova_click')];
    await settled();
    let isStopped = false;
    const stopped = service.stop(10_000).then(() => {
      isStopped = true;
    });
    const late = await operator.call('nova_click');
    await settled();
    expect([isStopped, host.calls.length]).toEqual([false, 1]);
    held[0]?.done();
    await stopped;
    expect(operator.replyTo(running)?.kind).toBe('result');
    expect([operator.replyTo(waiting), operator.replyTo(late), host.calls.length, broker.owed]).toEqual([
      undefined,
      undefined,
      1,
      2,
    ]);
  });

  test('a stop cancels what takes longer than its grace, and has that written down', async () => {
    const { worker, host, clock, service, journal } = await setUp();
    host.onCall = ({ options }) =>
      new Promise((_, reject) => {
        options.signal?.addEventListener('abort', () =>
          reject(new HostError('cancelled', 'cancelled', { execution: 'uncertain' })),
        );
      });
    const operator = await worker('o');
    const id = await operator.call('nova_click');
    await settled();
    const stopped = service.stop(10_000);
    clock.advance(9_999);
    await settled();
    expect(journal.asked).toEqual([`claim ${id}`]);
    clock.advance(1);
    await stopped;
    expect(journal.asked).toEqual([`claim ${id}`, `finish ${id}`]);
    expect(operator.errorOf(id).details.execution).toBe('uncertain');
  });

  test('a stop ends also when a call does not', async () => {
    const { worker, clock, service, hold } = await setUp();
    hold();
    await (await worker('o')).call('nova_click');
    await settled();
    const stopped = service.stop(10_000);
    clock.advance(10_000);
    await settled();
    clock.advance(1_000);
    await stopped;
    expect(service.status().running).toBe(1);
  });

  test('whoever watches and throws disturbs nobody', async () => {
    const { worker } = await setUp({
      onEvent: () => {
        throw new Error('a broken log');
      },
    });
    const researcher = await worker('r', 'researcher');
    const id = await researcher.call('nova_click');
    await settled();
    expect(researcher.errorOf(id).code).toBe('denied');
  });
});

describe('older words', () => {
  async function older(options: Partial<BrokerServiceOptions> = {}) {
    const parts = await setUp({ compat: true, ...options });
    const replies = new Map<string, unknown>();
    const link = await parts.broker.openWorker({ mailbox: 'old', role: 'researcher' })(
      { replied: (id, body) => replies.set(id, JSON.parse(body.toString())), told: () => {} },
      never,
    );
    const ask = async (id: string, body: unknown) => {
      await link.send({ id, body: Buffer.from(JSON.stringify(body)), ttlMs: 1_000 });
      await settled();
      return replies.get(id);
    };
    return { ...parts, ask };
  }

  test('AC-P1 AC-P2 AC-P3 as they were written: flat names, arguments as text, a sentence for an error', async () => {
    const { ask, host } = await older();
    host.onCall = ({ tool, args }) => JSON.stringify({ content: [{ type: 'text', text: `${tool} ${args}` }] });
    expect(await ask('m', { op: 'manifest' })).toEqual({
      manifest: [
        { type: 'function', function: { name: 'fetch_url', description: '', parameters: { type: 'object' } } },
      ],
    });
    expect(await ask('a', { op: 'call', tool: 'fetch_url', arguments: '{"mark":7}' })).toEqual({
      result: { success: true, result: 'fetch_url {"mark":7}' },
    });
    const { error } = (await ask('b', { op: 'call', tool: 'nova_screenshot', arguments: '{}' })) as { error: string };
    expect(error).toMatch(/nova_screenshot.*not allowed/);
    expect(await ask('c', { op: 'sing' })).toEqual({ error: expect.stringContaining('bad mcp request') });
    expect(host.calls).toHaveLength(1);
  });

  test('two servers with the same tool have it under their own names', async () => {
    const { ask, host } = await older();
    host.allow(() => true);
    host.set('other', { tools: ['fetch_url'] });
    const { manifest } = (await ask('m', { op: 'manifest' })) as { manifest: { function: { name: string } }[] };
    expect(manifest.map((each) => each.function.name)).toContain('other__fetch_url');
    await ask('a', { op: 'call', tool: 'other__fetch_url', arguments: '{}' });
    expect(host.calls.map(({ server, tool }) => [server, tool])).toEqual([['other', 'fetch_url']]);
  });

  test('without the switch they are refused', async () => {
    const { worker, host } = await setUp();
    const operator = await worker('o');
    const body = Buffer.from('{"op":"call","tool":"fetch_url","arguments":"{}"}');
    await operator.link?.send({ id: 'k', body, ttlMs: 1_000 });
    await settled();
    expect([operator.errorOf('k').code, host.calls]).toEqual(['invalid_request', []]);
  });
});
