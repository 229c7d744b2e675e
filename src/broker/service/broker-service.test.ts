import { describe, expect, test } from 'vitest';
import { never, RigWorker, serviceRig, settled } from '../../../test/fakes/service-rig.js';
import { HostError } from '../../kernel/errors.js';
import { manifestRequest } from '../messages.js';
import type { Delivery } from '../ports.js';
import type { BrokerServiceOptions } from './broker-service.js';

describe('what a role sees', () => {
  test('AC-P1 a listed role sees what it may use; an unlisted one, and none, everything', async () => {
    const { worker } = await serviceRig();
    expect(await (await worker('r', 'researcher')).tools()).toEqual(['fetch_url']);
    expect(await (await worker('o', 'operator')).tools()).toHaveLength(3);
    expect(await (await worker('n', null)).tools()).toHaveLength(3);
  });

  test('AC-P2 what a role may not use is not called, and the refusal names it', async () => {
    const { worker, host } = await serviceRig();
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
    const { worker } = await serviceRig();
    expect(await (await worker('s', 'sandbox')).tools()).toEqual([]);
  });

  test('D-46 without a role nothing is seen and nothing runs, unless that was asked for', async () => {
    const { worker, host, journal } = await serviceRig({ isRolelessAllowed: () => false });
    const nobody = await worker('n', null);
    expect(await nobody.tools()).toEqual([]);
    const id = await nobody.call('fetch_url', {}, { server: 'nova' });
    await settled();
    expect(nobody.errorOf(id).message).toContain('<none>');
    expect([host.calls, journal.asked]).toEqual([[], []]);
  });

  test('D-46 the role is that of the sender, whatever stands in the body', async () => {
    const { broker, worker, host } = await serviceRig();
    const researcher = await worker('r', 'researcher');
    const body =
      '{"v":1,"op":"call","callKey":"k","deadlineMs":1000,"tool":"nova_click","arguments":{},"role":"operator","from":{"mailbox":"o","role":"operator"}}';
    await researcher.link?.send({ id: 'k', body: Buffer.from(body), ttlMs: 1_000 });
    await settled();
    expect(researcher.errorOf('k').code).toBe('denied');
    expect([host.calls.length, broker.owed]).toEqual([0, 0]);
  });

  test('AC-X4 a changed role counts from the next call on, and its workers are told', async () => {
    const { clock, worker, host } = await serviceRig();
    const researcher = await worker('r', 'researcher');
    const before = await researcher.tools();
    host.allow(({ role }) => role !== 'researcher');
    host.set('nova', { tools: ['fetch_url', 'nova_click', 'nova_screenshot'] });
    const id = await researcher.call('fetch_url');
    await clock.advanceAsync(50);
    expect(before).toEqual(['fetch_url']);
    expect(researcher.errorOf(id).code).toBe('denied');
    expect(researcher.news.at(-1)).toEqual({ kind: 'manifest_changed', revision: expect.any(String) });
    expect(await researcher.tools()).toEqual([]);
  });

  test('D-58 a manifest is made once for a role and a state of things, and a server that restarts tells nobody', async () => {
    const { clock, worker, host } = await serviceRig();
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
    const { worker, host } = await serviceRig();
    let seen = () => {};
    host.listing = new Promise<void>((resolve) => {
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

describe('one worker and the others', () => {
  test('D-43 a reply that cannot be held is told, acknowledged, and the service goes on', async () => {
    const { worker, broker, events, host } = await serviceRig();
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
    const { worker, host, held, hold } = await serviceRig({
      limits: { running: 2, runningOfOne: 2, waitingOfOne: 100 },
    });
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
    const { worker, host, hold } = await serviceRig({ limits: { running: 1 } });
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

  test('D-45 a cancel that overtakes its request counts, however many cancels another worker sends', async () => {
    const { worker, host, service } = await serviceRig();
    const operator = await worker('o');
    service.cancelled({ mailbox: 'o', role: 'operator' }, 'early');
    for (let n = 0; n < 2_000; n++) service.cancelled({ mailbox: 'flood', role: 'operator' }, `x${n}`);
    await operator.call('nova_click', {}, { callKey: 'early' });
    await settled();
    expect([operator.errorOf('early').code, host.calls]).toEqual(['cancelled', []]);
  });

  test('D-45 a cancel that overtakes its request counts', async () => {
    const { worker, host, broker } = await serviceRig();
    const operator = await worker('o');
    operator.link?.cancel('early');
    await settled();
    await operator.call('nova_click', {}, { callKey: 'early' });
    await settled();
    expect([operator.errorOf('early').code, host.calls.length, broker.owed]).toEqual(['cancelled', 0, 0]);
  });

  test('D-45 what was given up before it was handed out is not begun, however long it waited; a caller’s own key is', async () => {
    const { service, host, clock } = await serviceRig();
    const refused: string[] = [];
    const asked = (id: string, sentAt: Date, more = ''): Delivery => ({
      ...{
        id,
        from: { mailbox: 'o', role: 'operator' },
        deliveries: 1,
        wasElsewhere: false,
        deadlineAt: undefined,
        sentAt,
      },
      body: Buffer.from(
        `{"v":1,"op":"call","callKey":"${id}","deadlineMs":60000,"tool":"nova_click","arguments":{}${more}}`,
      ),
      ...{ reply: async () => {}, answer: async () => {}, ack() {}, release() {} },
      refuse: async () => {
        // Not kept: it comes again.
        if (refused.push(id) === 1) throw new HostError('transport', 'the link is gone');
      },
    });
    const sentAt = clock.date();
    clock.advance(1_000);
    for (const id of ['waited', 'own', 'anew']) service.cancelled({ mailbox: 'o', role: 'operator' }, id);
    clock.advance(12_000);
    service.deliver(asked('waited', sentAt));
    await settled();
    service.deliver(asked('waited', sentAt));
    service.deliver(asked('own', sentAt, ',"callersKey":true'));
    service.deliver(asked('anew', clock.date()));
    await settled();
    expect([refused, host.calls.length]).toEqual([['waited', 'waited'], 2]);
  });

  test('D-45 what was given up here is not begun when it comes again because it could not be answered', async () => {
    const { worker, host, broker, clock, held, hold } = await serviceRig({ limits: { running: 1 } });
    hold();
    const operator = await worker('o');
    await operator.call('nova_click');
    const given = await operator.call('nova_click');
    await settled();
    operator.link?.cancel(given);
    await settled();
    broker.refuseNextReply(new HostError('transport', 'not now'));
    broker.refuseNextReply(new HostError('transport', 'not now'));
    held[0]?.done();
    await clock.advanceAsync(1_500);
    expect([host.calls.length, operator.errorOf(given).code, broker.owed]).toEqual([1, 'cancelled', 0]);
  });

  test('a stop waits for what runs, begins nothing that waits or comes, and leaves that owed', async () => {
    const { worker, host, broker, service, held, hold } = await serviceRig({ limits: { running: 1 } });
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
    const { worker, host, clock, service, journal } = await serviceRig();
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
    const { worker, clock, service, hold } = await serviceRig();
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
    const { worker } = await serviceRig({
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
    const parts = await serviceRig({ compat: true, ...options });
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
    const { worker, host } = await serviceRig();
    const operator = await worker('o');
    const body = Buffer.from('{"op":"call","tool":"fetch_url","arguments":"{}"}');
    await operator.link?.send({ id: 'k', body, ttlMs: 1_000 });
    await settled();
    expect([operator.errorOf('k').code, host.calls]).toEqual(['invalid_request', []]);
  });
});

test('a manifest is kept for whoever comes or asks, and for all of a role when a host comes or it changes', async () => {
  const { broker, service, clock, host } = await serviceRig();
  const kept: (string | undefined)[] = [];
  const link = await broker.openHost(service, never);
  link.keepManifest = async (role, _body, mailbox) => void kept.push(`${role} ${mailbox ?? 'all'}`);
  service.attach(link);
  const operator = await new RigWorker().open(broker, 'o', 'operator');
  await settled();
  await operator.tools();
  expect(kept).toEqual(['operator o', 'operator o']);
  host.set('nova', { tools: ['fetch_url'] });
  await clock.advanceAsync(50);
  service.attach(link);
  expect(kept.slice(2)).toEqual(['operator all', 'operator all']);
});

test('nothing of a manifest is kept or told before each server was seen, and then it is whole', async () => {
  const { broker, service, clock, host } = await serviceRig();
  host.set('slow', { capabilities: null });
  let see = () => {};
  host.listing = new Promise((resolve) => {
    see = resolve;
  });
  const kept: number[] = [];
  const link = await broker.openHost(service, never);
  link.keepManifest = async (_role, body) => void kept.push(JSON.parse(body.toString()).manifest.tools.length);
  service.attach(link);
  const operator = await new RigWorker().open(broker, 'o', 'operator');
  await settled();
  host.set('nova', { tools: ['fetch_url'] });
  await clock.advanceAsync(50);
  const before = [kept.length, operator.news.length];
  service.attach(link);
  host.listing = undefined;
  host.set('slow', { tools: ['sleep'] });
  see();
  await settled();
  await clock.advanceAsync(50);
  expect(before).toEqual([0, 0]);
  expect(operator.news.length).toBeGreaterThan(0);
  expect([...new Set(kept)]).toEqual([2]);
});

test('D-44 who comes a thousand times while servers start is looked after once', async () => {
  const { broker, service, host } = await serviceRig();
  host.set('slow', { capabilities: null });
  let see = () => {};
  host.listing = new Promise((resolve) => {
    see = resolve;
  });
  const kept: (string | undefined)[] = [];
  const link = await broker.openHost(service, never);
  link.keepManifest = async (_role, _body, mailbox) => void kept.push(mailbox);
  service.attach(link);
  for (let i = 0; i < 1_000; i++) service.joined({ mailbox: `w${i % 2}`, role: 'operator' });
  expect(host.listingsRequested).toHaveLength(1);
  see();
  await settled();
  expect(kept).toEqual(['w0', 'w1']);
});

/** A host that waits for a server; `see` ends that. */
async function unseenRig() {
  const rig = await serviceRig();
  rig.host.set('slow', { capabilities: null });
  let see = () => {};
  rig.host.listing = new Promise((resolve) => {
    see = resolve;
  });
  const link = await rig.broker.openHost(rig.service, never);
  return { ...rig, link, see: () => see() };
}

test('a role that is called undefined and no role have a manifest each', async () => {
  const { service, link, see } = await unseenRig();
  const kept: (string | undefined)[] = [];
  for (const role of [undefined, 'undefined']) service.joined({ mailbox: `of ${typeof role}`, role });
  link.keepManifest = async (role) => void kept.push(role);
  service.attach(link);
  see();
  await settled();
  expect(kept).toEqual([undefined, 'undefined']);
});

test('D-44 one for whom nothing can be kept keeps nobody from being told', async () => {
  const { service, link, see, events } = await unseenRig();
  const told: string[] = [];
  service.attach(link);
  link.tell = (mailbox) => void told.push(mailbox);
  link.keepManifest = (_role, _body, mailbox) => {
    if (mailbox === 'a') throw new Error('not that one');
    return Promise.resolve();
  };
  for (const mailbox of ['a', 'b']) service.joined({ mailbox, role: 'operator' });
  see();
  await settled();
  expect(told).toEqual(['a', 'b']);
  expect(events.filter(({ kind }) => kind === 'problem')).toHaveLength(1);
});

test.each(['asks', 'changes'])(
  'D-48 a role whose manifest could not be made when it changed is told when somebody next %s',
  async (next) => {
    const { service, host, clock, events, worker } = await serviceRig();
    const [first, second] = [await worker('first', 'operator'), await worker('second', 'operator')];
    await settled();
    const before = second.news.length;
    const { isAllowed } = host;
    host.isAllowed = () => {
      throw new Error('a guard of somebody');
    };
    host.set('nova', { tools: ['fetch_url'] });
    service.rulesChanged();
    await clock.advanceAsync(50);
    expect(events.filter(({ kind }) => kind === 'problem')).toHaveLength(1);
    host.isAllowed = isAllowed;
    expect(second.news).toHaveLength(before);
    // Whoever asks next has it made, and the others hear of it; or whatever changes next.
    if (next === 'asks') await first.call('fetch_url');
    else host.set('nova', { tools: ['fetch_url'], state: 'parked' });
    await clock.advanceAsync(50);
    await settled();
    expect(second.news.slice(before)).toEqual([{ kind: 'manifest_changed', revision: expect.any(String) }]);
  },
);

test('D-48 who came by a link that is gone since is not told by it', async () => {
  const { broker, service, link, see } = await unseenRig();
  const told: string[] = [];
  service.attach(link);
  link.tell = (mailbox) => void told.push(mailbox);
  service.joined({ mailbox: 'a', role: 'operator' });
  service.attach(await broker.openHost(service, never));
  see();
  await settled();
  expect(told).toEqual([]);
});

test('D-48 whoever comes is told which manifest counts, and everybody when a host comes', async () => {
  const { broker, connect, service } = await serviceRig();
  const early = await new RigWorker().open(broker, 'early', 'operator');
  await settled();
  expect(early.news).toEqual([{ kind: 'manifest_changed', revision: expect.any(String) }]);
  broker.cut('host');
  service.detach(undefined, 0);
  await connect();
  await settled();
  expect(early.news).toHaveLength(2);
  expect(early.news[1]).not.toEqual(early.news[0]);
});
