/**
 * Silent real servers. A server that works on a call is not restarted within the time limit of the call, over stdio and over
 * HTTP. A child that is stopped by a signal becomes suspect once its calls have timed out, is checked before the next call, and
 * replaced. If it continues in time, its run is kept.
 */
import { expect, onTestFinished, test } from 'vitest';
import { createHost } from '../../src/host/host.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { eventually } from '../eventually.js';
import { json, result, rpcError, startServer } from '../fakes/http-server.js';
import { failureOf, outcomeOf } from './harness.js';
import { MoodyHost } from './moody-host.js';

/** Lets time pass, which the stop ladder needs, until the condition holds. */
const inTime = (moody: MoodyHost, what: string, isSo: () => boolean) =>
  eventually(what, () => {
    moody.clock.advance(50);
    return isSo();
  });

const states = ({ events }: MoodyHost) => events.flatMap((event) => (event.kind === 'state' ? [event.to] : []));

function stop({ row }: MoodyHost): () => void {
  const pid = row.pid as number;
  process.kill(pid, 'SIGSTOP');
  const goOn = () => {
    try {
      process.kill(pid, 'SIGCONT');
    } catch {
      // The process has ended, as expected.
    }
  };
  onTestFinished(goOn);
  return goOn;
}

/** A call got no message within its 60 s, and the probe after it got no answer within 5 s. */
async function doubted(moody: MoodyHost) {
  const call = failureOf(moody.call('write', {}));
  await moody.clock.advanceAsync(60_000);
  expect([(await call).code, moody.row.state]).toEqual(['outcome_uncertain', 'ready']);
  await moody.clock.advanceAsync(5_010);
  expect(moody.row.state).toBe('suspect');
}

test('W7 a child that works 60 s on one call is not restarted, even if others call it meanwhile', async () => {
  const moody = await MoodyHost.open({ timeouts: { call: '120s' } });
  await moody.call();
  moody.mood = 'held';
  const long = moody.call('write', { say: 'done' }, { deadlineMs: 100_000 });
  await eventually('the call is at the server', () => moody.calls === 2);
  await moody.clock.advanceAsync(20_000);
  const impatient = outcomeOf(moody.call('write', {}, { deadlineMs: 10_000 }));
  await moody.clock.advanceAsync(20_000);
  const patient = moody.call('write', {}, { deadlineMs: 100_000 });
  await moody.clock.advanceAsync(20_000);
  expect([await impatient, moody.row.state, moody.row.circuit]).toEqual(['outcome_uncertain', 'ready', 'closed']);
  moody.mood = 'well';
  expect(String((await long).bytes)).toContain('done');
  await patient;
  await moody.clock.advanceAsync(60_000);
  expect([moody.starts, states(moody)]).toEqual([1, ['connecting', 'ready']]);
  expect(moody.row).toMatchObject({ run: 1, restartCount: 0, lastError: undefined });
});

test.each(['by a deadline of 10 s', 'by cancelling it'])(
  'W7 a child is left to finish a call that its caller gave up %s',
  async (how) => {
    const moody = await MoodyHost.open({ timeouts: { call: '120s' } });
    await moody.call();
    moody.mood = 'held';
    const caller = new AbortController();
    const limits = how === 'by cancelling it' ? { signal: caller.signal } : { deadlineMs: 10_000 };
    const call = failureOf(moody.call('write', {}, limits));
    await eventually('the call is at the server', () => moody.calls === 2);
    await moody.clock.advanceAsync(10_000);
    caller.abort();
    await call;
    await moody.clock.advanceAsync(100_000);
    moody.mood = 'well';
    expect(await outcomeOf(moody.call())).toBe('ok');
    expect([moody.starts, states(moody)]).toEqual([1, ['connecting', 'ready']]);
  },
);

test('W7 an HTTP server that works 60 s on one call keeps its session', async () => {
  const held: (() => void)[] = [];
  let isBusy = false;
  const server = await startServer(({ rpcMethod, id }, response) => {
    const answers: Record<string, unknown> = {
      initialize: {
        protocolVersion: '2025-11-25',
        capabilities: { tools: {} },
        serverInfo: { name: 'h', version: '1' },
      },
      'tools/list': { tools: [{ name: 'write', inputSchema: { type: 'object' } }] },
      'tools/call': { content: [{ type: 'text', text: 'done' }] },
      ping: {},
    };
    const answer = answers[rpcMethod ?? ''];
    const respond = () => {
      if (id === undefined) response.writeHead(202).end();
      else if (answer) json(response, result(id, answer), 200, { 'mcp-session-id': 's' });
      else json(response, rpcError(id, -32601), 400);
    };
    // The server handles one request at a time: it answers nothing during a call.
    if (rpcMethod === 'tools/call') isBusy = true;
    if (isBusy) held.push(respond);
    else respond();
  });
  onTestFinished(() => server.close());
  const clock = new FakeClock();
  const entry = { url: server.url, transport: 'streamable-http', timeouts: { call: '120s' } };
  const host = await createHost({ mcpServers: { a: entry } }, { clock });
  onTestFinished(() => host.close());
  const call = host.call('a', 'write', {}, { deadlineMs: 100_000 });
  await server.until(() => isBusy);
  await clock.advanceAsync(60_000);
  isBusy = false;
  for (const respond of held.splice(0)) respond();
  expect(String((await call).bytes)).toContain('done');
  const methods = server.received.map(({ rpcMethod }) => rpcMethod);
  expect([methods.filter((method) => method === 'initialize').length, methods.includes('ping')]).toEqual([1, false]);
  expect(host.status()[0]).toMatchObject({ state: 'ready', run: 1, restartCount: 0, lastError: undefined });
});

test('a hung child is checked before the next call, which ends with a code; the run is replaced, and later calls succeed', async () => {
  const moody = await MoodyHost.open({ timeouts: { call: '1m' } });
  await moody.call();
  stop(moody);
  await doubted(moody);
  const second = outcomeOf(moody.call());
  expect(moody.row.state).toBe('suspect');
  await moody.clock.advanceAsync(5_000);
  expect(await second).toBe('reconnecting');
  await inTime(moody, 'the next run is ready', () => moody.row.run === 2 && moody.row.state === 'ready');
  expect(await outcomeOf(moody.call())).toBe('ok');
  expect(moody.row).toMatchObject({ restartCount: 1, lastError: { code: 'transport' } });
  // The call that never reached the child did not run: only the calls before and after it did.
  expect([moody.starts, moody.calls]).toEqual([2, 2]);
  expect(states(moody)).toEqual(['connecting', 'ready', 'suspect', 'closing', 'backing_off', 'connecting', 'ready']);
});

test('W7 a hung child is replaced 15 s after its call has timed out, although no client calls', async () => {
  const moody = await MoodyHost.open({ timeouts: { call: '1m' } });
  await moody.call();
  stop(moody);
  await doubted(moody);
  await moody.clock.advanceAsync(10_000);
  expect(moody.row.state).not.toBe('suspect');
  await inTime(moody, 'the next run is ready', () => moody.row.run === 2 && moody.row.state === 'ready');
  expect(moody.row).toMatchObject({ restartCount: 1, lastError: { code: 'transport' } });
});

test('D-17 a suspect that continues is no new run: the count of its breaker stays', async () => {
  const moody = await MoodyHost.open();
  await moody.call();
  await moody.timeOut(4);
  const goOn = stop(moody);
  const caller = new AbortController();
  const given = outcomeOf(moody.call('write', {}, { signal: caller.signal }));
  caller.abort();
  expect(await given).toBe('cancelled');
  await moody.clock.advanceAsync(30_000);
  expect(moody.row.state).toBe('ready');
  await moody.clock.advanceAsync(5_000);
  expect(moody.row.state).toBe('suspect');
  goOn();
  await inTime(moody, 'it is heard again', () => moody.row.state === 'ready');
  expect(moody.row).toMatchObject({ run: 1, consecutiveFailures: 4, circuit: 'closed' });
  await moody.timeOut(1);
  expect([moody.starts, await outcomeOf(moody.call())]).toEqual([1, 'circuit_open']);
});

test.each(['allow it 4 s each', 'cancel after 20 s each'])(
  'W10 a hung child is detected and replaced although calls never stop and their callers %s',
  async (how) => {
    const moody = await MoodyHost.open({ timeouts: { call: '1m' } });
    await moody.call();
    stop(moody);
    const isCancelled = how.startsWith('cancel');
    const everyMs = isCancelled ? 20_000 : 4_000;
    const callOnce = async () => {
      const caller = new AbortController();
      const call = outcomeOf(
        moody.call('write', {}, isCancelled ? { signal: caller.signal } : { deadlineMs: everyMs }),
      );
      await moody.clock.advanceAsync(everyMs);
      caller.abort();
      return call;
    };
    for (let passedMs = 0; passedMs < 300_000 && moody.row.circuit !== 'open'; passedMs += everyMs) await callOnce();
    expect([moody.row.circuit, moody.row.run]).toEqual(['open', 1]);
    for (let passedMs = 0; passedMs < 300_000 && moody.row.restartCount === 0; passedMs += everyMs) await callOnce();
    await inTime(moody, 'the next run is ready', () => moody.row.run === 2 && moody.row.state === 'ready');
    expect(await outcomeOf(moody.call())).toBe('ok');
  },
);
