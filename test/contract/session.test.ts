/**
 * The contract of every session, over every transport and with every implementation of a server.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isHostError } from '../../src/kernel/errors.js';
import type { CallOptions, Session } from '../../src/session/session.js';
import type { InboundRequest } from '../../src/wire/inbound-requests.js';
import type { Answer, InboundNotification } from '../../src/wire/peer-interface.js';
import { eventually } from '../eventually.js';
import { tools as fixtureTools } from '../fixtures/servers/behaviour.mjs';
import { rawTools } from '../fixtures/servers/raw-texts.mjs';
import { type Bench, cells } from './cells.js';

const within = (ms = 20_000): CallOptions => ({ deadlineAtMs: performance.now() + ms });
const parse = (answer: Answer) => JSON.parse(answer.bytes.toString()) as Record<string, never>;
const textOf = (answer: Answer) => (parse(answer).content as unknown as { text: string }[])[0]?.text;
const failureOf = async (call: Promise<Answer>) => {
  const error = await call.then(
    (answer) => new Error(`answered: ${answer.bytes}`),
    (thrown: unknown) => thrown,
  );
  if (!isHostError(error)) throw error;
  return error;
};

describe.each(cells)('$name', (cell) => {
  let bench: Bench;
  let session: Session;
  const notifications: InboundNotification[] = [];
  const requests: InboundRequest[] = [];
  let onRequest: (request: InboundRequest) => void = (request) => request.refuse(-1, 'not now');
  const handlers = {
    notification: (notification: InboundNotification) => void notifications.push(notification),
    request: (request: InboundRequest) => {
      requests.push(request);
      onRequest(request);
    },
  };

  beforeAll(async () => {
    bench = await cell.open();
    session = await bench.connect({ handlers });
  });
  afterAll(() => bench.close());

  test('agrees on the newest era and version that the server supports', () => {
    expect(session.facts).toMatchObject({
      era: cell.era,
      version: cell.version,
      instructions: 'A server to test against.',
    });
    expect(JSON.parse(session.facts.capabilities.toString())).toMatchObject({ tools: { listChanged: true } });
    expect(session.channel.kind).toBe(cell.transport);
  });

  test('lists every page', async () => {
    const expected = cell.name.startsWith('raw') ? rawTools : fixtureTools;
    const list = await session.list('tools/list', within());
    expect(list.items.map(({ key }) => key)).toEqual(expected.map(({ name }: { name: string }) => name));
    expect(list.pages).toBe(Math.ceil(expected.length / 3));
    expect((await session.list('resources/list', within())).items).toHaveLength(2);
    expect((await session.list('resources/templates/list', within())).items).toHaveLength(1);
    expect((await session.list('prompts/list', within())).items).toHaveLength(1);
  });

  test('calls a tool, and returns the result unchanged', async () => {
    const answer = await session.callTool('add', '{"a":2,"b":3}', within());
    expect(parse(answer)).toMatchObject({ structuredContent: { sum: 5 } });
    const text = 'naïve “quotes” 日本語 😀 \n \u2028 \\ "';
    expect(textOf(await session.callTool('echo', JSON.stringify({ text }), within()))).toBe(text);
    const bytes = Buffer.from(JSON.stringify({ text }));
    expect(textOf(await session.callTool('echo', bytes, within()))).toBe(text);
  });

  test('reads a resource and gets a prompt', async () => {
    const read = await session.request('resources/read', '{"uri":"fixture://item/42"}', within());
    expect(parse(read)).toMatchObject({ contents: [{ text: 'item 42' }] });
    const got = await session.request('prompts/get', '{"name":"greet","arguments":{"who":"you"}}', within());
    expect(got.bytes.toString()).toContain('Hello, you!');
  });

  test('an error of the tool and an error of the call are answers, not failures', async () => {
    expect(parse(await session.callTool('fail', '{}', within()))).toMatchObject({ isError: true });
    const unknown = await session.callTool('no-such-tool', '{}', within());
    expect([unknown.kind, parse(unknown).code]).toEqual(['error', -32602]);
  });

  test('a hundred calls at once each get their own answer', async () => {
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, i) => session.callTool('echo', JSON.stringify({ text: `call ${i}` }), within())),
    );
    expect(answers.map(textOf)).toEqual(answers.map((_, i) => `call ${i}`));
  });

  test('a megabyte is transferred whole in both directions', async () => {
    expect(textOf(await session.callTool('big', '{"bytes":1000000}', within()))).toHaveLength(1_000_000);
    const text = 'y'.repeat(1_000_000);
    expect(textOf(await session.callTool('echo', JSON.stringify({ text }), within()))).toBe(text);
  });

  if (cell.abilities.progress)
    test('progress arrives in order, before the answer', async () => {
      const seen: number[] = [];
      const onProgress = (params: Buffer) =>
        seen.push((JSON.parse(params.toString()) as { progress: number }).progress);
      const answer = await session.callTool('progress', '{"steps":5}', { ...within(), onProgress });
      expect(seen).toEqual([1, 2, 3, 4, 5]);
      expect(textOf(answer)).toBe('took 5 steps');
    });

  test('a deadline ends the wait with an uncertain outcome, and the session stays usable', async () => {
    const error = await failureOf(session.callTool('sleep', '{"ms":60000,"nonce":"late"}', within(300)));
    expect(error.toJSON()).toMatchObject({ code: 'timeout', execution: 'uncertain', server: cell.name });
    expect(textOf(await session.callTool('echo', '{"text":"still here"}', within()))).toBe('still here');
    if (cell.abilities.cancels)
      await eventually('the server is notified', () => bench.ledger().includes('cancelled late'));
  });

  test('an abort ends the wait at once, and reaches the server', async () => {
    const abort = new AbortController();
    const args = '{"ms":60000,"nonce":"abandoned","begun":true}';
    const call = failureOf(session.callTool('sleep', args, { ...within(), signal: abort.signal }));
    await eventually('the tool runs', () => bench.ledger().includes('begun abandoned'));
    abort.abort();
    expect((await call).toJSON()).toMatchObject({ code: 'cancelled', execution: 'uncertain' });
    if (cell.abilities.cancels)
      await eventually('the server is notified', () => bench.ledger().includes('cancelled abandoned'));
  });

  if (cell.abilities.asks && cell.era === 'legacy')
    test('a question of the server arrives raw, and the answer reaches the tool', async () => {
      onRequest = (request) => request.respond('{"action":"accept","content":{"name":"Ada"}}');
      const answer = await session.callTool('ask', '{}', within());
      expect(JSON.parse(textOf(answer) ?? '')).toEqual({ action: 'accept', content: { name: 'Ada' } });
      const asked = requests.at(-1);
      expect(asked?.method).toBe('elicitation/create');
      // Over streamable HTTP, a question belongs to the call in whose stream it arrives, if the call has a stream. An attached
      // server names the call with `relatedRequestId`.
      const attributable =
        cell.transport === 'attached' || (cell.transport === 'streamable-http' && cell.abilities.progress);
      expect(typeof asked?.origin).toBe(attributable ? 'number' : 'undefined');
    });

  if (cell.abilities.asks && cell.era === 'modern')
    test('a question of the server is a result, and the repeated request has the answer', async () => {
      const first = parse(await session.callTool('ask', '{}', within()));
      expect(first).toMatchObject({ resultType: 'input_required' });
      const { requestState } = first;
      const inputResponses = { who: { action: 'accept', content: { name: 'Ada' } } };
      const retry = JSON.stringify({ name: 'ask', arguments: {}, inputResponses, requestState });
      expect(textOf(await session.request('tools/call', retry, within()))).toContain('Ada');
    });

  if (cell.abilities.announces)
    test('D-32 a notification arrives while no request is in progress', async () => {
      const heard = () => notifications.filter(({ method }) => method === 'notifications/tools/list_changed').length;
      const acknowledged = () =>
        notifications.some(({ method }) => method === 'notifications/subscriptions/acknowledged');
      const before = heard();
      const abort = new AbortController();
      if (cell.era === 'modern') {
        const filter = '{"notifications":{"toolsListChanged":true}}';
        const listening = session.request('subscriptions/listen', filter, { ...within(), signal: abort.signal });
        listening.catch(() => {});
        await eventually('the subscription is acknowledged', acknowledged);
      }
      // A legacy HTTP server drops notifications before the stream is open, so it may have to repeat them.
      await eventually('the announcement', async () => {
        await session.callTool('notify', '{}', within());
        return heard() > before;
      });
      abort.abort();
    });

  test('a ping is answered', async () => {
    await session.probe(performance.now() + 10_000);
  });

  if (cell.abilities.exits)
    test('if a server dies during a call, that call is uncertain, later ones are not executed, and no process is left', async () => {
      const doomed = await bench.connect();
      const inFlight = failureOf(doomed.callTool('sleep', '{"ms":60000}', within()));
      const fatal = failureOf(doomed.callTool('exit', '{"code":7}', within()));
      for (const error of await Promise.all([inFlight, fatal])) {
        expect(error.toJSON()).toMatchObject({
          code: 'transport',
          reason: 'exit',
          exitCode: 7,
          execution: 'uncertain',
        });
      }
      expect((await failureOf(doomed.callTool('echo', '{"text":"x"}', within()))).toJSON()).toMatchObject({
        execution: 'not_executed',
        retryable: true,
      });
      await doomed.close();
    });

  if (cell.name.includes('session'))
    test('a session that the server forgot is opened again, and no call is lost or run twice', async () => {
      await bench.running?.forgetSessions();
      const nonces = Array.from({ length: 10 }, (_, i) => `after-${i}`);
      const answers = await Promise.all(
        nonces.map((nonce) => session.callTool('count', JSON.stringify({ nonce }), within())),
      );
      expect(answers.map(textOf)).toEqual(nonces.map((nonce) => `counted ${nonce}`));
      expect(
        bench
          .ledger()
          .filter((line) => line.startsWith('after-'))
          .sort(),
      ).toEqual(nonces);
    });

  test('after close requests are refused, and closing again has no effect', async () => {
    const extra = await bench.connect();
    await Promise.all([extra.close(), extra.close()]);
    expect((await failureOf(extra.callTool('echo', '{"text":"x"}', within()))).details.execution).toBe('not_executed');
  });
});
