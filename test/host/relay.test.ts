/**
 * Relayed calls of a gateway, with real servers that ask in the middle of a call: each question reaches the client that surely
 * caused it, or no client.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Upstreams } from '../../src/gateway/upstreams.js';
import { createHost, type Host } from '../../src/host/host.js';
import type { HostCallOptions, ToolResult } from '../../src/host/host-interface.js';
import type { Principal } from '../../src/policy/operation.js';
import { eventually } from '../eventually.js';
import { events, json, result, rpcError, startServer, type TestServer } from '../fakes/http-server.js';
import { fakePrincipal } from '../fakes/policy-call.js';
import { isAlive } from '../is-alive.js';
import { failureOf } from './harness.js';

const script = fileURLToPath(new URL('../fakes/asking-server.mjs', import.meta.url));
let folder: string;
let host: Host;
let listener: TestServer | undefined;
let problems: unknown[];

/** Sends a question in the stream of each call, and answers the call with the reply. */
async function startAskingHttp(): Promise<string> {
  const streams = new Map<string, (told: unknown) => void>();
  const held = new Map<string, () => void>();
  listener = await startServer(({ method, id, rpcMethod, body }, response) => {
    if (method !== 'POST') return void response.writeHead(405).end();
    if (rpcMethod === undefined) {
      const answer = JSON.parse(body) as { id: string; result: unknown };
      response.writeHead(202).end();
      return streams.get(answer.id)?.(answer.result);
    }
    if (id === undefined) return void response.writeHead(202).end();
    if (rpcMethod === 'initialize') {
      return void json(response, result(id, { protocolVersion: '2025-11-25', capabilities: { tools: {} } }));
    }
    if (rpcMethod === 'tools/list') return void json(response, result(id, { tools: [] }));
    if (rpcMethod !== 'tools/call') return void json(response, rpcError(id, -32601));
    events(response);
    const say = (message: unknown) => response.write(`data: ${JSON.stringify(message)}\n\n`);
    streams.set(`q-${id}`, (told) => {
      say(result(id, { content: [{ type: 'text', text: JSON.stringify(told) }] }));
      response.end();
    });
    // Both calls are in progress before the first question.
    if (streams.size === 2) {
      for (const stream of streams.keys()) held.get(stream)?.();
      say({ jsonrpc: '2.0', id: `q-${id}`, method: 'elicitation/create', params: {} });
    } else held.set(`q-${id}`, () => say({ jsonrpc: '2.0', id: `q-${id}`, method: 'elicitation/create', params: {} }));
  });
  return listener.url;
}

/** A caller, with the questions and notifications it received. */
class Someone {
  readonly options: HostCallOptions;
  readonly asked: string[] = [];
  readonly told: string[] = [];

  constructor(name: string, more: HostCallOptions = {}) {
    this.options = {
      principal: fakePrincipal(name),
      onServerRequest: (request) => {
        this.asked.push(request.method);
        request.respond(JSON.stringify({ action: 'accept', content: { name } }));
      },
      onServerNotification: (_method, params) => this.told.push(String(params)),
      ...more,
    };
  }

  call(tool: string, args: Record<string, unknown> = {}, more: HostCallOptions = {}): Promise<ToolResult> {
    return host.call('a', tool, args, { ...this.options, ...more });
  }
}

const textOf = (result: ToolResult): string =>
  (result.json() as { content: { text: string }[] }).content[0]?.text as string;

const start = async (more: Record<string, unknown> = {}, url?: string) => {
  const client = { name: 'hostler', version: '0', capabilities: { elicitation: {} } };
  const reach = url === undefined ? { command: process.execPath, args: [script] } : { url };
  const entry = { ...reach, pins: 'off', trustAnnotations: true, ...more };
  problems = [];
  const onProblem = (error: unknown) => problems.push(error);
  host = await createHost({ mcpServers: { a: entry } }, { stateDir: folder, client, onProblem });
};

beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-relay-'));
});
afterEach(async () => {
  await host.close();
  await listener?.close();
  listener = undefined;
  rmSync(folder, { recursive: true, force: true });
});

describe('a question of a shared server', () => {
  test('reaches the only call in progress; its answer is not cached and has the format of the client’s era', async () => {
    await start();
    const ann = new Someone('ann');
    const first = await ann.call('ask');
    expect([textOf(first), first.era]).toEqual(['{"action":"accept","content":{"name":"ann"}}', 'legacy']);
    await ann.call('ask');
    expect([ann.asked, host.cacheStats().entries]).toEqual([['elicitation/create', 'elicitation/create'], 0]);
  });

  test('is refused while two calls are in progress, and reaches no client', async () => {
    await start();
    const [ann, bob] = [new Someone('ann'), new Someone('bob')];
    const stop = new AbortController();
    const hanging = failureOf(bob.call('hang', {}, { signal: stop.signal }));
    await eventually('the call hangs', () => bob.told.length === 1);
    expect(textOf(await ann.call('ask'))).toBe(
      'refused -32603: ambiguous: 2 requests are in progress, Hostler does not guess which one asked; set isolation: per-client',
    );
    expect([ann.asked, bob.asked, ann.told]).toEqual([[], [], []]);
    stop.abort();
    expect((await hanging).code).toBe('cancelled');
  });

  test('is refused while an abandoned call may be its cause, but not after the late answer of that call', async () => {
    await start();
    const [ann, bob] = [new Someone('ann'), new Someone('bob')];
    const stop = new AbortController();
    const hanging = failureOf(ann.call('hang', {}, { signal: stop.signal }));
    await eventually('the call hangs', () => ann.told.length === 1);
    stop.abort();
    await hanging;
    expect(textOf(await ann.call('ask'))).toContain(
      'refused -32603: ambiguous: 1 request is in progress and 1 was given up and may still be at work, ',
    );
    expect(ann.asked).toEqual([]);
    await ann.call('finish');
    expect(textOf(await ann.call('ask'))).toContain('"ann"');
    // Calls of ann have just ended: this question may be caused by one of them.
    expect(textOf(await bob.call('ask'))).toContain(
      'refused -32603: ambiguous: a request that ended in the last 30 s ',
    );
    expect(bob.asked).toEqual([]);
  });

  test('E3 reaches no client after a call of another client ended, also with the same key; nor does a log message', async () => {
    await start();
    const [first, second] = [1, 2].map((n) => new Someone('ann', { instance: `session-${n}` })) as [Someone, Someone];
    await first.call('pid');
    expect(textOf(await first.call('ask'))).toContain('"ann"');
    expect(textOf(await second.call('ask'))).toBe(
      'refused -32603: ambiguous: a request that ended in the last 30 s may still be at work, Hostler does not guess which one asked; set isolation: per-client',
    );
    const stop = new AbortController();
    const hanging = failureOf(second.call('hang', {}, { signal: stop.signal }));
    await eventually('question and log line are counted', () => host.status()[0]?.unattributed === 2);
    stop.abort();
    await hanging;
    expect([first.asked, first.told, second.asked, second.told]).toEqual([['elicitation/create'], [], [], []]);
    expect(problems).toMatchObject([
      { details: { server: 'a', reason: 'unattributed' }, hint: expect.stringContaining('isolation: per-client') },
    ]);
  });

  test('is refused when its caller cannot be asked', async () => {
    await start();
    expect(textOf(await host.call('a', 'ask'))).toBe(
      'refused -32601: the client cannot be asked for elicitation/create',
    );
  });

  test('reaches a prompt too, whose errors are answers', async () => {
    await start();
    const { options } = new Someone('ann');
    const prompt = await host.request('a', 'prompts/get', '{"name":"greet"}', options);
    expect([prompt.kind, prompt.era, prompt.bytes.toString()]).toEqual([
      'result',
      'legacy',
      '{"description":"{\\"action\\":\\"accept\\",\\"content\\":{\\"name\\":\\"ann\\"}}","messages":[]}',
    ]);
    const error = await host.request('a', 'completion/complete', '{}', options);
    expect([error.kind, JSON.parse(error.bytes.toString())]).toEqual([
      'error',
      { code: -32601, message: 'Method not found', data: { method: 'completion/complete' } },
    ]);
  });
});

test('over HTTP the stream shows the call that a question belongs to, for any number of open calls', async () => {
  await start({}, await startAskingHttp());
  const [ann, bob] = [new Someone('ann'), new Someone('bob')];
  const answers = await Promise.all([ann.call('ask'), bob.call('ask')]);
  expect(answers.map(textOf)).toEqual(
    ['ann', 'bob'].map((name) => JSON.stringify({ action: 'accept', content: { name } })),
  );
  expect([ann.asked.length, bob.asked.length]).toEqual([1, 1]);
});

test('the metadata of a relayed call reaches the server, except members for modern servers', async () => {
  await start();
  const result = await host.call(
    'a',
    'echo',
    { n: 1 },
    { meta: '"traceparent":"00-1",\n"vendor/x":{"a":1}', members: '"requestState":"s"', capabilities: '{"roots":{}}' },
  );
  expect(JSON.parse(textOf(result))).toEqual({
    _meta: { traceparent: '00-1', 'vendor/x': { a: 1 }, progressToken: expect.any(Number) },
    name: 'echo',
    requestState: 's',
    arguments: { n: 1 },
  });
});

describe('with an instance for each client', () => {
  const ann = () => new Someone('ann', { instance: 'ann' });
  const bob = () => new Someone('bob', { instance: 'bob' });
  const instances = () => host.status().map((row) => row.instances);

  test('each client gets its own questions, also while others call', async () => {
    await start({ isolation: 'per-client' });
    const everyone = [ann(), bob(), ann()];
    const answers = await Promise.all(everyone.map((someone) => someone.call('ask')));
    expect(
      answers.map(textOf).map((told) => (told.includes('ann') ? 'ann' : told.includes('bob') ? 'bob' : told)),
    ).toEqual(['ann', 'bob', 'ann']);
    const pids = await Promise.all(everyone.map((someone) => someone.call('pid')));
    expect(new Set(pids.map(textOf)).size).toBe(2);
    expect(instances()).toEqual([2]);
    const prompt = await host.request('a', 'prompts/get', '{"name":"greet"}', bob().options);
    expect(prompt.bytes.toString()).toContain('bob');
  });

  test('a question right after the handshake reaches the client that the instance was started for', async () => {
    await start({ isolation: 'per-client' });
    const someone = ann();
    expect(textOf(await someone.call('roots'))).toContain('"ann"');
    expect(someone.asked).toEqual(['roots/list']);
  });

  test('E4 a call that names no client is refused, and no shared process is used or started', async () => {
    await start({ isolation: 'per-client' });
    const { principal } = ann().options;
    const refused = await Promise.all(
      [
        host.call('a', 'pid'),
        host.call('a', 'pid', {}, { principal }),
        host.request('a', 'prompts/get', '{"name":"greet"}'),
        host.read('a', 'x:1'),
        host.subscribe('a', 'x:1', principal as Principal, () => {}),
      ].map(failureOf),
    );
    for (const error of refused)
      expect(error.toJSON()).toMatchObject({ code: 'invalid_request', server: 'a', field: 'instance' });
    expect(refused[0]?.hint).toContain('instance');
    expect((await failureOf(host.call('a', 'pid', {}, { instance: '' }))).code).toBe('invalid_request');
    host.setAllowlist(() => ({ allow: false, reason: 'not yours' }));
    const denied = await Promise.all([host.call('a', 'pid'), host.read('a', 'x:1')].map(failureOf));
    expect(denied.map(({ code }) => code)).toEqual(['denied', 'denied']);
    expect(host.status()[0]).toMatchObject({ run: 0, instances: 0 });
  });

  test('calls that it never answers open the breaker, as those of a shared server do', async () => {
    await start({
      isolation: 'per-client',
      trustAnnotations: false,
      breaker: { threshold: 2 },
      timeouts: { call: '200ms' },
    });
    const someone = ann();
    const failures = [await failureOf(someone.call('hang')), await failureOf(someone.call('hang'))];
    expect(failures.map(({ code }) => code)).toEqual(['outcome_uncertain', 'outcome_uncertain']);
    expect((await failureOf(someone.call('pid'))).code).toBe('circuit_open');
  });

  test('W13 each instance has its own breaker: an open one refuses only its client, and is shown in the status', async () => {
    await start({
      isolation: 'per-client',
      trustAnnotations: false,
      breaker: { threshold: 2, reset: '10m' },
      timeouts: { call: '200ms' },
    });
    const changes: string[] = [];
    host.on('breaker', ({ from, to }) => changes.push(`${from} ${to}`));
    const row = () => host.status()[0];
    for (let i = 0; i < 2; i++) await failureOf(ann().call('hang'));
    expect((await failureOf(ann().call('pid'))).code).toBe('circuit_open');
    expect((await failureOf(host.request('a', 'prompts/get', '{"name":"greet"}', ann().options))).code).toBe(
      'circuit_open',
    );
    expect(textOf(await bob().call('pid'))).toMatch(/^[0-9]+$/);
    expect(row()).toMatchObject({ circuit: 'open', consecutiveFailures: 2, instances: 2 });
    const upstreams: Pick<Upstreams, 'endInstance'> = host;
    upstreams.endInstance('ann');
    expect(row()).toMatchObject({ circuit: 'closed', consecutiveFailures: 0, instances: 1 });
    expect(changes).toEqual(['closed open', 'open closed']);
    // The next instance of the same client has a new breaker.
    expect(textOf(await ann().call('pid'))).toMatch(/^[0-9]+$/);
  });

  test.each([
    ['calls', (someone: Someone) => someone.call('hang')],
    ['prompts', ({ options }: Someone) => host.request('a', 'prompts/get', '{"name":"greet"}', options)],
  ])('however many %s end with it, no other client is refused, although the shared server runs', async (_what, ask) => {
    await start({ isolation: 'per-client', trustAnnotations: false, breaker: { threshold: 2 } });
    await host.start('a');
    const someone = new Someone('ann', { instance: 'ann', onServerRequest: () => {} });
    const pid = Number(textOf(await someone.call('pid')));
    const hanging = Array.from({ length: 3 }, () => failureOf(ask(someone)));
    await eventually('they are under way', () => host.status()[0]?.running === 3);
    process.kill(pid, 'SIGKILL');
    expect((await Promise.all(hanging)).every(({ details }) => details.execution === 'uncertain')).toBe(true);
    expect(textOf(await bob().call('pid'))).toMatch(/^[0-9]+$/);
  });

  test('E4 a call that waits for its instance during a reload is served by the next one', async () => {
    await start({ isolation: 'per-client' });
    const waiting = ann().call('pid');
    await eventually('its instance starts', () => instances()[0] === 1);
    await host.reload('a');
    expect(textOf(await waiting)).toMatch(/^[0-9]+$/);
  });

  test('an instance ends with its client, and all end with the server', async () => {
    await start({ isolation: 'per-client' });
    const pids = await Promise.all([ann().call('pid'), bob().call('pid')]);
    const [ofAnn, ofBob] = pids.map((answer) => Number(textOf(answer))) as [number, number];
    const upstreams: Pick<Upstreams, 'call' | 'request' | 'endInstance'> = host;
    upstreams.endInstance('ann');
    expect(instances()).toEqual([1]);
    await eventually('that of ann is gone', () => !isAlive(ofAnn));
    expect(isAlive(ofBob)).toBe(true);
    await host.stop('a');
    expect([instances(), isAlive(ofBob)]).toEqual([[0], false]);
    expect((await failureOf(bob().call('pid'))).code).toBe('server_stopped');
  });
});
