import { describe, expect, test } from 'vitest';
import { MemoryJournal } from '../../../test/fakes/memory-journal.js';
import { never, serviceRig, settled } from '../../../test/fakes/service-rig.js';
import { HostError } from '../../kernel/errors.js';
import { joined, requestDigest } from '../messages.js';
import type { Delivery } from '../ports.js';
import { BrokerService } from './broker-service.js';

describe('one call', () => {
  test('AC-P5 each of eight at once gets the answer to its own arguments', async () => {
    const { worker, host } = await serviceRig();
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
    const { worker, held, hold } = await serviceRig();
    hold();
    const operator = await worker('o');
    for (let i = 0; i < 4; i++) await operator.call('nova_click');
    await settled();
    expect(held).toHaveLength(4);
  });

  test('D-49 D-55 arguments and results go through to the digit', async () => {
    const { worker, host } = await serviceRig();
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
    const { worker, host, broker, journal } = await serviceRig();
    const operator = await worker('o');
    const body = `{"v":1,"op":"call","callKey":"k","deadlineMs":1000,"tool":"nova_click",${text}}`;
    await operator.link?.send({ id: 'k', body: Buffer.from(body), ttlMs: 1_000 });
    await settled();
    expect(operator.errorOf('k')).toMatchObject({ code: 'invalid_request', details: { execution: 'not_executed' } });
    expect(operator.errorOf('k').message).toContain(said);
    expect([host.calls, journal.asked, broker.owed]).toEqual([[], [], 0]);
  });

  test('B11 a reply to a caller’s own key says which call it is of, also a refusal; others say nothing', async () => {
    const { worker } = await serviceRig();
    const operator = await worker('o');
    const ask = async (id: string, tool: string, more = '') => {
      const body = `{"v":1,"op":"call","callKey":"${id}","deadlineMs":1000,"tool":"${tool}","arguments":{"a":1}${more}}`;
      await operator.link?.send({ id, body: Buffer.from(body), ttlMs: 1_000 });
      await settled();
      return operator.replyTo(id);
    };
    const of = (tool: string) => requestDigest({ server: undefined, tool, args: '{"a":1}' });
    expect(await ask('k', 'nova_click', ',"callersKey":true')).toMatchObject({ kind: 'result', of: of('nova_click') });
    expect(await ask('l', 'nothing', ',"callersKey":true')).toMatchObject({ kind: 'error', of: of('nothing') });
    expect(await ask('m', 'nova_click')).toMatchObject({ kind: 'result', of: undefined });
  });

  test('a key that is not the id of its message is refused', async () => {
    const { worker, host } = await serviceRig();
    const operator = await worker('o');
    const body = '{"v":1,"op":"call","callKey":"other","deadlineMs":1000,"tool":"nova_click","arguments":{}}';
    await operator.link?.send({ id: 'k', body: Buffer.from(body), ttlMs: 1_000 });
    await settled();
    expect([operator.errorOf('k').code, host.calls]).toEqual(['invalid_request', []]);
  });

  test('the order is claim, run, journal, reply, acknowledge', async () => {
    const { worker, journal, host, broker } = await serviceRig();
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

  test.each([
    ['of its own', false, 0],
    ['with the messages in it', true, 1],
  ])(
    'a journal %s: the reply is asked for after its outcome, and waits for that unless one write holds both',
    async (_, isOneStore, held) => {
      const { worker, journal, broker } = await serviceRig({ isOneStore });
      const operator = await worker('o');
      let written = () => {};
      const asked: string[] = [];
      journal.finish = () => {
        asked.push(`finish, ${broker.heldReplies} replies`);
        return new Promise((resolve) => {
          written = resolve;
        });
      };
      broker.holdsReplies = true;
      await operator.call('nova_click');
      await settled();
      expect([asked, broker.heldReplies]).toEqual([['finish, 0 replies'], held]);
      written();
      await settled();
      expect([broker.heldReplies, broker.owed]).toEqual([1, 0]);
    },
  );

  test('progress reaches whoever asked for it, and nobody else', async () => {
    const { worker, host } = await serviceRig();
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
    const { worker, host } = await serviceRig();
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
    const { worker, host } = await serviceRig();
    host.onCall = () => `{"content":[{"type":"text","text":"${'x'.repeat(4 * 1024 * 1024)}"}]}`;
    const operator = await worker('o');
    const id = await operator.call('nova_click');
    await settled();
    expect(operator.errorOf(id)).toMatchObject({ code: 'result_too_large', details: { execution: 'uncertain' } });
  });

  test('the trace of the caller goes along', async () => {
    const { worker, host } = await serviceRig();
    const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
    await (await worker('o')).call('nova_click', {}, { trace: { traceparent, tracestate: 'x=1' } });
    await settled();
    expect(JSON.parse(`{${host.calls[0]?.options.meta}}`)).toEqual({ traceparent, tracestate: 'x=1' });
  });
});

/** A call whose host dies over it, and the next host that is handed the request. */
async function takenUpByTheNext({
  worker,
  host,
  hold,
  broker,
  journal,
  clock,
}: Awaited<ReturnType<typeof serviceRig>>) {
  hold();
  const operator = await worker('o');
  const id = await operator.call('nova_click');
  await settled();
  broker.cut('host');
  journal.restart();
  const next = new BrokerService({ host, journal, clock, isRolelessAllowed: () => true });
  next.attach(await broker.openHost(next, never));
  await settled();
  return { operator, id };
}

describe('at most once', () => {
  test('D-40 a request that comes again while it runs gets the one outcome', async () => {
    const { worker, host, held, hold, broker, connect, service } = await serviceRig();
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
    const { worker, host, held, hold, broker, connect } = await serviceRig();
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
    const rig = await serviceRig();
    const { host, broker } = rig;
    const { operator, id } = await takenUpByTheNext(rig);
    expect(operator.errorOf(id)).toMatchObject({ code: 'outcome_uncertain', details: { execution: 'uncertain' } });
    expect([host.calls.length, broker.owed]).toEqual([1, 0]);
  });

  test('D-40 a tool that may be repeated is run again by the next host', async () => {
    const rig = await serviceRig();
    const { host, held } = rig;
    host.repeatable.add('nova/nova_click');
    const { operator, id } = await takenUpByTheNext(rig);
    held[1]?.done();
    await settled();
    expect([host.calls.length, operator.replyTo(id)?.kind]).toEqual([2, 'result']);
  });

  test('D-40 the journal is told when a call was first sent, by how much of its time is left and not by when its turn comes', async () => {
    const { worker, journal, clock } = await serviceRig();
    const told: (number | undefined)[] = [];
    const claim = journal.claim.bind(journal);
    journal.claim = (asked) => {
      told.push(asked.firstSentAt?.getTime());
      return claim(asked);
    };
    const operator = await worker('o');
    const nowMs = clock.date().getTime();
    await operator.call('nova_click', {}, { callKey: 'first' });
    await operator.call('nova_click', {}, { callKey: 'again', sentMsAgo: 4_000 });
    await settled();
    expect(told).toEqual([undefined, nowMs - 4_000]);
  });

  test('B11 the same key with other arguments is refused', async () => {
    const { worker, host } = await serviceRig();
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
    const { worker, host } = await serviceRig();
    await (await worker('a')).call('nova_click', {}, { callKey: 'same' });
    await (await worker('b')).call('nova_click', {}, { callKey: 'same' });
    await settled();
    expect(host.calls).toHaveLength(2);
  });

  test('who was told that its call did not run can rely on it, also when the request comes once more', async () => {
    const { worker, host } = await serviceRig();
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
    const { worker, host, journal, broker } = await serviceRig();
    const operator = await worker('o');
    journal.refuseNextClaim = new HostError('insufficient_storage', 'the disk is full', { execution: 'not_executed' });
    const id = await operator.call('nova_click');
    await settled();
    expect([operator.errorOf(id).code, host.calls.length, broker.owed]).toEqual(['insufficient_storage', 0, 0]);
  });

  test('D-40 a journal that fails does not make what may have run be told as not run', async () => {
    const { worker, host, journal, clock } = await serviceRig();
    const operator = await worker('o');
    const sent = { clock: 'c', atMs: clock.nowMs() };
    await operator.call('nova_click', {}, { callKey: 'ran', isCallersKey: true, sent });
    await settled();
    operator.replies.length = 0;
    const failed = new HostError('insufficient_storage', 'the disk failed', { execution: 'not_executed' });
    journal.refuseNextClaim = failed;
    // It can still be asked: what it knows is said.
    await operator.call('nova_click', {}, { callKey: 'ran', isCallersKey: true, sent });
    await settled();
    expect(operator.replyTo('ran')?.kind).toBe('result');
    operator.replies.length = 0;
    journal.claim = async () => Promise.reject(failed);
    journal.find = async () => Promise.reject(failed);
    const told = async (callKey: string, more: object) => {
      await operator.call('nova_click', {}, { callKey, ...more });
      await settled();
      const { code, details, retryable } = operator.errorOf(callKey);
      return [code, details.execution, retryable];
    };
    expect(await told('ran', { isCallersKey: true, sent })).toEqual(['insufficient_storage', 'uncertain', false]);
    expect(await told('again', { sent, sentMsAgo: 1 })).toEqual(['insufficient_storage', 'uncertain', false]);
    expect(await told('silent', {})).toEqual(['insufficient_storage', 'uncertain', false]);
    expect(await told('first', { sent })).toEqual(['insufficient_storage', 'not_executed', true]);
    expect(host.calls).toHaveLength(1);
  });

  test('D-42 a request whose time is over is answered and not run', async () => {
    const { worker, host, broker, clock, connect, events, journal } = await serviceRig();
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

  test('D-42 what is left of the time is what the call gets, but for the way back', async () => {
    const { worker, host, broker, clock, connect } = await serviceRig();
    const operator = await worker('o');
    broker.cut('host');
    await operator.call('nova_click', {}, { deadlineMs: 5_000 });
    await operator.call('nova_click', {}, { deadlineMs: 3_020 });
    await clock.advanceAsync(3_000);
    await connect();
    await settled();
    // Of very little, a quarter.
    expect(host.calls.map(({ options }) => options.deadlineMs)).toEqual([2_000 - 10, 20 - 5]);
  });
});

describe('the way of a request', () => {
  const sent = (atMs: number) => ({ sent: { clock: 'c', atMs } });

  test('K9 what it lost there is not given to it again by who stamps its end', async () => {
    const { worker, host, clock } = await serviceRig();
    const operator = await worker('o');
    await clock.advanceAsync(1_000);
    await operator.call('nova_click', {}, { deadlineMs: 500, ...sent(1_000) });
    await operator.call('nova_click', {}, { deadlineMs: 500, ...sent(800) });
    const late = await operator.call('nova_click', {}, { deadlineMs: 500, ...sent(400) });
    await settled();
    expect(host.calls.map(({ options }) => options.deadlineMs)).toEqual([490, 290]);
    expect(operator.errorOf(late)).toMatchObject({ code: 'expired', details: { execution: 'not_executed' } });
  });

  test.each([
    '{}',
    '7',
    '{"clock":"c"}',
    '{"clock":"","atMs":1}',
    '{"clock":"c","atMs":-1}',
    '{"clock":"c","atMs":1.5}',
  ])('that cannot be read (%s) is refused by name', async (text) => {
    const { worker, host } = await serviceRig();
    const operator = await worker('o');
    const body = `{"v":1,"op":"call","callKey":"k","deadlineMs":1000,"tool":"nova_click","arguments":{},"sent":${text}}`;
    await operator.link?.send({ id: 'k', body: Buffer.from(body), ttlMs: 1_000 });
    await settled();
    expect(operator.errorOf('k')).toMatchObject({ code: 'invalid_request', details: { execution: 'not_executed' } });
    expect(operator.errorOf('k').message).toMatch(/^sent\./);
    expect(host.calls).toEqual([]);
  });
});

describe('what is said of a call is what became of it', () => {
  test('D-40 one that ran is answered with its result, also when its time is over or it may not be called any more', async () => {
    const { worker, host, broker, clock, connect } = await serviceRig();
    const operator = await worker('o');
    await operator.call('nova_click', {}, { callKey: 'k', deadlineMs: 5_000 });
    await settled();
    const [first] = operator.replies.splice(0);
    broker.cut('host');
    await operator.call('nova_click', {}, { callKey: 'k', deadlineMs: 5_000 });
    await clock.advanceAsync(60_000);
    await connect();
    await settled();
    expect(operator.replies.splice(0)).toEqual([first]);
    host.allow(() => false);
    await operator.call('nova_click', {}, { callKey: 'k' });
    await settled();
    expect([operator.replies, host.calls.length]).toEqual([[first], 1]);
  });

  test('D-40 one whose host died over it is uncertain, also when its time is over', async () => {
    const { worker, host, hold, broker, journal, clock } = await serviceRig();
    hold();
    const operator = await worker('o');
    const id = await operator.call('nova_click', {}, { deadlineMs: 5_000 });
    await settled();
    broker.cut('host');
    journal.restart();
    await clock.advanceAsync(60_000);
    const next = new BrokerService({ host, journal, clock, isRolelessAllowed: () => true });
    next.attach(await broker.openHost(next, never));
    await settled();
    expect(operator.errorOf(id)).toMatchObject({ code: 'outcome_uncertain', details: { execution: 'uncertain' } });
  });

  test('D-45 a cancel that came too late does not hide the result from who asks again', async () => {
    const { worker, host, clock } = await serviceRig();
    const operator = await worker('o');
    await operator.call('nova_click', {}, { callKey: 'k' });
    await settled();
    const [first] = operator.replies.splice(0);
    operator.link?.cancel('k');
    operator.link?.cancel('other');
    await settled();
    await operator.call('nova_click', {}, { callKey: 'k' });
    await clock.advanceAsync(5_001);
    await operator.call('nova_click', {}, { callKey: 'other' });
    await settled();
    expect(operator.replies[0]).toEqual(first);
    expect([operator.replyTo('other')?.kind, host.calls.length]).toEqual(['result', 2]);
  });

  test('B11 the same key with other arguments is refused while the first runs, too', async () => {
    const { worker, held, hold, service } = await serviceRig();
    hold();
    const operator = await worker('o');
    await operator.call('nova_click', { a: 1 }, { callKey: 'same' });
    await settled();
    const told: string[] = [];
    const body = '{"v":1,"op":"call","callKey":"same","deadlineMs":1000,"tool":"nova_click","arguments":{"a":2}}';
    service.deliver({
      ...{ id: 'same', from: { mailbox: 'o', role: 'operator' }, body: Buffer.from(body), deliveries: 1 },
      ...{ wasElsewhere: false, deadlineAt: undefined, reply: async () => {}, ack: () => {}, release: () => {} },
      answer: async () => {},
      refuse: async (...parts) => void told.push(joined(...parts).toString()),
    });
    await settled();
    held[0]?.done();
    await settled();
    expect([told.length, JSON.parse(told[0] ?? '{}').error.code, held.length]).toEqual([1, 'key_conflict', 1]);
    expect(operator.replyTo('same')?.kind).toBe('result');
  });

  test('D-40 who asks again while the answer is on its way is answered too, and nothing is left owed', async () => {
    const { service, host } = await serviceRig();
    const body = '{"v":1,"op":"call","callKey":"k","deadlineMs":1000,"tool":"nova_click","arguments":{}}';
    const said: string[] = [];
    const asked = (name: string, answer: () => Promise<void>): Delivery => ({
      ...{ id: 'k', from: { mailbox: 'o', role: 'operator' }, body: Buffer.from(body), deliveries: 1 },
      ...{ wasElsewhere: false, deadlineAt: undefined, reply: async () => {} },
      ...{ ack: () => said.push(`${name} acked`), release: () => said.push(`${name} released`) },
      refuse: async () => void said.push(`${name} refused`),
      answer: async () => {
        said.push(`${name} answered`);
        await answer();
      },
    });
    let goOn = (_: Error) => {};
    service.deliver(asked('first', () => new Promise((_, reject) => (goOn = reject))));
    await settled();
    service.deliver(asked('second', async () => {}));
    service.deliver(asked('third', async () => service.deliver(asked('fourth', async () => {}))));
    goOn(new HostError('transport', 'the link is gone'));
    await settled();
    expect(said).toEqual(['first answered', 'first released', 'third answered', 'second acked', 'fourth answered']);
    expect([host.calls.length, service.status().running]).toEqual([1, 0]);
  });

  test('D-40 when a link that lives does not take the answer, every handing out of the request is given back', async () => {
    const { service, held, hold } = await serviceRig();
    hold();
    const body = '{"v":1,"op":"call","callKey":"k","deadlineMs":1000,"tool":"nova_click","arguments":{}}';
    const said: string[] = [];
    const notTaken = () => Promise.reject(new HostError('transport', 'the call was claimed meanwhile'));
    for (const name of ['first', 'second', 'third']) {
      service.deliver({
        ...{ id: 'k', from: { mailbox: 'o', role: 'operator' }, body: Buffer.from(body), deliveries: 1 },
        ...{ wasElsewhere: false, deadlineAt: undefined, reply: notTaken, answer: notTaken, refuse: notTaken },
        ...{ ack: () => said.push(`${name} acked`), release: () => said.push(`${name} released`) },
      });
      await settled();
    }
    held[0]?.done();
    await settled();
    expect(said.sort()).toEqual(['first released', 'second released', 'third released']);
    expect(service.status().running).toBe(0);
  });

  test('D-40 one that was given back while it waited is not begun, unless it came again meanwhile', async () => {
    const { service, host, journal, held, hold } = await serviceRig();
    hold();
    const owed = new Set<string>();
    const asked = (id: string, name = id): Delivery => {
      owed.add(name);
      const body = `{"v":1,"op":"call","callKey":"${id}","deadlineMs":1000,"tool":"nova_click","arguments":{}}`;
      const over = async () => void owed.delete(name);
      return {
        ...{ id, from: { mailbox: 'o', role: 'operator' }, body: Buffer.from(body), deliveries: 1, release: over },
        ...{ wasElsewhere: false, deadlineAt: undefined, reply: async () => {}, answer: over, refuse: over, ack: over },
        get isOwed() {
          return owed.has(name);
        },
      };
    };
    // As many as may run at once; those after them wait.
    let running = 0;
    for (; held.length === running; running++) {
      service.deliver(asked(`r${running}`));
      await settled();
    }
    const late = [`r${running - 1}`, 'given-back', 'came-again'];
    for (const id of late.slice(1)) service.deliver(asked(id));
    owed.delete('given-back');
    owed.delete('came-again');
    service.deliver(asked('came-again', 'newer'));
    for (let n = 0; n < held.length; n++) {
      held[n]?.done();
      await settled();
    }
    expect(journal.asked.filter((each) => late.includes(each.replace('claim ', '')))).toEqual([
      `claim ${late[0]}`,
      'claim came-again',
    ]);
    expect([host.calls.length, service.status().running, owed.size]).toEqual([running + 1, 0, 0]);
  });

  test('D-40 one that comes more often than is kept here is given back, and none is left owed', async () => {
    const { service, host, held, hold } = await serviceRig();
    hold();
    const body = '{"v":1,"op":"call","callKey":"k","deadlineMs":1000,"tool":"nova_click","arguments":{}}';
    const owed = new Set<number>();
    const released: number[] = [];
    for (let n = 0; n < 12; n++) {
      owed.add(n);
      const over = async () => void owed.delete(n);
      service.deliver({
        ...{ id: 'k', from: { mailbox: 'o', role: 'operator' }, body: Buffer.from(body), deliveries: 1 },
        ...{ wasElsewhere: false, deadlineAt: undefined, reply: async () => {}, answer: over, refuse: over, ack: over },
        release: () => {
          released.push(n);
          owed.delete(n);
        },
      });
      await settled();
    }
    expect([released, owed.size]).toEqual([[0, 1, 2, 3], 8]);
    held[0]?.done();
    await settled();
    expect([host.calls.length, released.length, owed.size]).toEqual([1, 4, 0]);
  });

  test('D-40 with a journal of its own, a host does not begin what another one had', async () => {
    const { worker, host, broker, clock, hold } = await serviceRig();
    hold();
    const operator = await worker('o');
    const id = await operator.call('nova_click');
    await settled();
    broker.cut('host');
    const elsewhere = new BrokerService({
      ...{ host, clock, journal: new MemoryJournal(), isRolelessAllowed: () => true, isJournalShared: false },
    });
    elsewhere.attach(await broker.openHost(elsewhere, never));
    await settled();
    expect(operator.errorOf(id)).toMatchObject({ code: 'outcome_uncertain', details: { reason: 'host_lost' } });
    expect(host.calls).toHaveLength(1);
  });

  test.each([
    ['its time is over', 'nova_click', 'expired'],
    ['it may not be called', 'nova_click', 'denied'],
    ['there is no such tool', 'nothing', 'unknown'],
    ['there is no room for it', 'nova_click', 'full'],
    ['it cannot be read', 'nova_click', 'unreadable'],
  ] as const)(
    'D-40 with a journal of its own, a host does not say that what another one had did not run: %s',
    async (_, tool, why) => {
      const { host, service, worker, hold } = await serviceRig({
        isJournalShared: false,
        ...(why === 'full' ? { limits: { waitingOfOne: 1, runningOfOne: 1 } } : {}),
      });
      if (why === 'denied') host.allow(() => false);
      if (why === 'full') {
        hold();
        const operator = await worker('o');
        for (let i = 0; i < 2; i++) await operator.call('nova_click');
        await settled();
      }
      const body = `{"v":1,"op":"call","callKey":"k","deadlineMs":1000,"tool":"${tool}",${why === 'unreadable' ? '"x":1' : '"arguments":{}'}}`;
      const told: unknown[] = [];
      const handed = async (id: string, wasElsewhere: boolean) => {
        service.deliver({
          ...{ id, from: { mailbox: 'o', role: 'operator' }, body: Buffer.from(body.replace('"k"', `"${id}"`)) },
          ...{ deliveries: 2, wasElsewhere, deadlineAt: why === 'expired' ? new Date(0) : undefined },
          ...{ reply: async () => {}, answer: async () => {}, ack: () => {}, release: () => {} },
          refuse: async (...parts) => {
            const { execution, retryable } = JSON.parse(joined(...parts).toString()).error;
            told.push({ execution, retryable });
          },
        });
        await settled();
      };
      const calls = host.calls.length;
      await handed('k', true);
      await handed('l', false);
      expect(told).toEqual([
        { execution: 'uncertain', retryable: false },
        { execution: 'not_executed', retryable: why === 'full' },
      ]);
      expect(host.calls).toHaveLength(calls);
    },
  );

  test('D-40 with a journal of its own, a host does not begin what was sent before the broker lost its store', async () => {
    const { host, service, clock } = await serviceRig({ isJournalShared: false });
    host.repeatable.add('nova/fetch_url');
    await clock.advanceAsync(60_000);
    const heldSince = new Date(clock.date().getTime() - 10_000);
    const said: string[] = [];
    const handed = async (id: string, tool: string, sentMsAgo: number | undefined, since: Date | undefined) => {
      const ago = sentMsAgo === undefined ? '' : `,"sentMsAgo":${sentMsAgo}`;
      const body = `{"v":1,"op":"call","callKey":"${id}","deadlineMs":1000,"tool":"${tool}","arguments":{}${ago}}`;
      service.deliver({
        ...{ id, from: { mailbox: 'o', role: 'operator' }, body: Buffer.from(body), deliveries: 1 },
        ...{ wasElsewhere: false, heldSince: since, deadlineAt: undefined },
        ...{ reply: async () => {}, ack: () => {}, release: () => {} },
        answer: async () => void said.push(`${id} ran`),
        refuse: async (...parts) => void said.push(`${id} ${JSON.parse(joined(...parts).toString()).error.code}`),
      });
      await settled();
    };
    await handed('before', 'nova_click', 10_000, heldSince);
    await handed('repeatable', 'fetch_url', 10_000, heldSince);
    await handed('after', 'nova_click', 8_000, heldSince);
    await handed('new', 'nova_click', undefined, heldSince);
    await handed('kept', 'nova_click', 10_000, undefined);
    expect(said).toEqual(['before outcome_uncertain', 'repeatable ran', 'after ran', 'new ran', 'kept ran']);
  });

  test('D-40 the same host begins what it was handed before and had not begun', async () => {
    const { worker, host, broker, journal, clock, service } = await serviceRig({ isJournalShared: false });
    service.close();
    const operator = await worker('o');
    broker.cut('host');
    const id = await operator.call('nova_click');
    journal.refuseNextClaim = new HostError('transport', 'not now', { execution: 'not_executed' });
    const own = new BrokerService({ host, clock, journal, isRolelessAllowed: () => true, isJournalShared: false });
    broker.refuseNextReply(new HostError('transport', 'the link is gone'));
    own.attach(await broker.openHost(own, never));
    await settled();
    await clock.advanceAsync(1_000);
    await settled();
    expect([operator.replyTo(id)?.kind, host.calls.length]).toEqual(['result', 1]);
  });
});
