/** `hostler worker` as its MCP client sees it, on a fake clock. */
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { serveWorker } from '../../../src/broker/worker/serve-worker.js';
import { HostError } from '../../../src/kernel/errors.js';
import { makeRig, type Rig, type RigOptions, unconnected } from './worker-rig.js';

interface Line {
  readonly id?: number;
  readonly method?: string;
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly code: number; readonly message: string };
}

const modernMeta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {},
};

class Pipe {
  readonly lines: Line[] = [];
  readonly problems: unknown[] = [];
  readonly closed: Promise<unknown>;
  readonly #input = new PassThrough();
  readonly #rig: Rig;
  #id = 0;

  constructor(rig: Rig) {
    this.#rig = rig;
    const output = new PassThrough();
    let rest = '';
    output.on('data', (chunk: Buffer) => {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop() as string;
      this.lines.push(...lines.map((line) => JSON.parse(line) as Line));
    });
    const { tools, clock } = rig;
    const onProblem = (error: unknown) => void this.problems.push(error);
    this.closed = serveWorker({
      version: '0',
      tools,
      clock,
      callMs: 60_000,
      input: this.#input,
      output,
      onProblem,
    }).closed;
  }

  send(method: string, params: unknown = {}): () => Line | undefined {
    const id = ++this.#id;
    this.#input.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    return () => this.lines.find((line) => line.id === id);
  }

  notify(method: string, params: unknown): void {
    this.#input.write(`${JSON.stringify({ jsonrpc: '2.0', method, params })}\n`);
  }

  async ask(method: string, params: unknown = {}): Promise<Line | undefined> {
    const answer = this.send(method, params);
    for (let turns = 0; turns < 20 && !answer(); turns++) await this.#rig.settle();
    return answer();
  }

  async open(): Promise<Line | undefined> {
    const clientInfo = { name: 'test', version: '1' };
    const greeting = await this.ask('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo });
    this.notify('notifications/initialized', {});
    await this.#rig.settle();
    return greeting;
  }

  end(): void {
    this.#input.end();
  }
}

async function makePipe(options: RigOptions = {}): Promise<Rig & { readonly pipe: Pipe }> {
  const rig = await makeRig({ connectionWaitMs: 15_000, tools: ['nova/click'], ...options });
  return { ...rig, pipe: new Pipe(rig) };
}

const toolsOf = (line: Line | undefined) => line?.result?.tools as { name: string; _meta?: unknown }[] | undefined;
const namesOf = (line: Line | undefined) => toolsOf(line)?.map(({ name }) => name);
const call = (name: string, args = {}) => ['tools/call', { name, arguments: args }] as const;

describe('a client of a worker', () => {
  test('is offered tools, and nothing that a worker does not support', async () => {
    const { pipe } = await makePipe({ tools: ['nova/click', 'web/fetch'] });
    const greeting = await pipe.open();
    expect(greeting?.result).toMatchObject({ serverInfo: { name: 'hostler' } });
    expect(greeting?.result?.capabilities).toEqual({ tools: { listChanged: true } });
    expect(greeting?.result?.instructions).toContain('nova');
    const discovered = await pipe.ask('server/discover', { _meta: modernMeta });
    expect(discovered?.result?.capabilities).toEqual({ tools: { listChanged: true } });
    for (const method of ['prompts/list', 'prompts/get', 'resources/read', 'completion/complete', 'logging/setLevel'])
      expect([method, (await pipe.ask(method))?.error?.code]).toEqual([method, -32601]);
    expect(namesOf(await pipe.ask('tools/list'))).toEqual(['nova__click', 'web__fetch']);
    expect(namesOf(await pipe.ask('tools/list', { _meta: modernMeta }))).toEqual(['nova__click', 'web__fetch']);
    expect(pipe.problems).toEqual([]);
  });

  const unreachable = () => new HostError('connect_failed', 'nothing listens', { hint: 'start the host' });

  test('is greeted within a second, and gets an error, never an empty list, while no tools are known', async () => {
    const rig = unconnected({ connectionWaitMs: 15_000, tools: ['nova/click'] });
    rig.broker.refusal = unreachable();
    const pipe = new Pipe(rig);
    const clientInfo = { name: 'test', version: '1' };
    const greeting = pipe.send('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo });
    const list = pipe.send('tools/list', { _meta: modernMeta });
    await rig.clock.advanceAsync(999);
    expect(greeting()).toBeUndefined();
    await rig.clock.advanceAsync(1);
    expect(greeting()?.result).toMatchObject({ serverInfo: { name: 'hostler' } });
    await pipe.open();
    await rig.clock.advanceAsync(3_999);
    expect(list()).toBeUndefined();
    await rig.clock.advanceAsync(1);
    expect(list()?.result).toBeUndefined();
    expect(list()?.error?.message).toContain('nothing listens; start the host');
    rig.broker.refusal = undefined;
    await rig.clock.advanceAsync(12_000);
    expect(pipe.lines.filter(({ method }) => method === 'notifications/tools/list_changed')).toHaveLength(1);
    expect(namesOf(await pipe.ask('tools/list'))).toEqual(['nova__click']);
  });

  test('lists the tools of an earlier run within a second while the broker is unreachable', async () => {
    const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-served-'));
    const manifestFile = path.join(folder, 'manifest.json');
    const first = await makeRig({ manifestFile, tools: ['nova/click'] });
    await first.tools.close();
    const rig = unconnected({ connectionWaitMs: 15_000, manifestFile });
    rig.broker.refusal = unreachable();
    const pipe = new Pipe(rig);
    const list = pipe.send('tools/list', { _meta: modernMeta });
    await rig.clock.advanceAsync(1_000);
    expect(namesOf(list())).toEqual(['nova__click']);
    const called = pipe.send('tools/call', { name: 'nova__click', arguments: {}, _meta: modernMeta });
    await rig.clock.advanceAsync(15_000);
    expect(JSON.stringify(called())).toContain('not connected');
    rmSync(folder, { recursive: true, force: true });
  });

  test('lists the last known tools while the broker is away, and is told that it is away', async () => {
    const { pipe, broker, settle, clock } = await makePipe();
    await pipe.open();
    broker.refusal = new HostError('connect_failed', 'down');
    broker.cut();
    await settle();
    expect(toolsOf(await pipe.ask('tools/list'))).toMatchObject([
      { name: 'nova__click', _meta: { 'hostler/state': 'connecting' } },
    ]);
    const waiting = pipe.send(...call('nova__click'));
    await clock.advanceAsync(15_000);
    expect(waiting()?.result).toMatchObject({ isError: true, _meta: { 'hostler/error': { code: 'reconnecting' } } });
    broker.refusal = undefined;
    await clock.advanceAsync(3_000);
    expect(toolsOf(await pipe.ask('tools/list'))?.[0]?._meta).toBeUndefined();
    expect(pipe.lines.filter(({ method }) => method)).toEqual([]);
  });

  test('is told that the key of the worker was refused, not its own', async () => {
    const { pipe, broker, clock } = await makePipe();
    await pipe.open();
    broker.refusal = new HostError('unauthenticated', 'the broker refused the key');
    broker.cut();
    await clock.advanceAsync(1_000);
    expect((await pipe.ask(...call('nova__click')))?.result).toMatchObject({
      isError: true,
      _meta: { 'hostler/error': { code: 'needs_reauth', retryable: false, tool: 'click' } },
    });
  });

  test('has 60 s for a call, and 10 min for one with progress; its trace is passed on', async () => {
    const { pipe, host } = await makePipe();
    const trace = { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01` };
    await pipe.open();
    await pipe.ask('tools/call', { name: 'nova__click', arguments: {}, _meta: trace });
    await pipe.ask('tools/call', { name: 'nova__click', arguments: {}, _meta: { progressToken: 7 } });
    expect(host.sendings.map(({ request }) => request)).toMatchObject([
      { deadlineMs: 60_000, trace, wantsProgress: false },
      { deadlineMs: 600_000, wantsProgress: true },
    ]);
  });

  test('is told that a tool which needs input cannot be used through a worker', async () => {
    const { pipe, host } = await makePipe();
    host.era = 'modern';
    host.onCall = () => Buffer.from('{"resultType":"input_required","inputRequests":{},"requestState":"s"}');
    const params = { name: 'nova__click', arguments: {}, _meta: modernMeta };
    const answer = await pipe.ask('tools/call', params);
    expect(JSON.stringify(answer)).toContain('which a worker cannot pass on');
  });

  test('cancels a call at the host', async () => {
    const { pipe, host, settle } = await makePipe();
    await pipe.open();
    host.onCall = () => new Promise(() => {});
    const answer = pipe.send(...call('nova__click'));
    await settle();
    pipe.notify('notifications/cancelled', { requestId: 2 });
    await settle();
    expect(answer()).toBeUndefined();
    expect(host.cancelled).toEqual([host.ran[0]?.key]);
  });

  test('ends the connection when it disconnects', async () => {
    const { pipe, tools, broker, settle } = await makePipe();
    await pipe.open();
    pipe.end();
    await pipe.closed;
    await settle();
    expect([tools.status().state, broker.connectedWorkers]).toEqual(['closed', 0]);
  });
});

test('a server with a name that is not valid here is left out, and reported', async () => {
  const { pipe } = await makePipe({ tools: ['a b?/click', 'nova/click'] });
  await pipe.open();
  expect(namesOf(await pipe.ask('tools/list'))).toEqual(['nova__click']);
  expect(pipe.problems).toHaveLength(1);
});
