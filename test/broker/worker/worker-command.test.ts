/** `hostler worker` as a process, used by the clients of the MCP SDKs, over WebSocket. */
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { HostError } from '../../../src/kernel/errors.js';
import { Running } from '../../cli/hostler-process.js';
import { eventually } from '../../eventually.js';
import {
  connectSdk1Client,
  connectSdk2Client,
  type Heard,
  type Json,
  type SdkClient,
} from '../../fixtures/sdk-clients.js';
import { WebSocketPlace, workerKey } from './websocket-place.js';

const main = fileURLToPath(new URL('../../../dist/cli/main.js', import.meta.url));

let broker: WebSocketPlace;
let client: SdkClient | undefined;
/** Notifications of the client. */
let heard: Heard;
let running: Running | undefined;

const open = async () => {
  broker = new WebSocketPlace(['nova/click', 'web/fetch']);
  await broker.start();
};
const close = async () => {
  await client?.close();
  client = undefined;
  running?.child.kill('SIGKILL');
  running = undefined;
  await broker.remove();
};

const target = () =>
  ({
    kind: 'stdio',
    command: process.execPath,
    args: [main, 'worker', '--broker', broker.url, '--key-file', broker.keyFile],
    env: broker.env,
  }) as const;
const clients = [
  ['SDK 1.32', (heard: Heard) => connectSdk1Client(target(), heard)],
  ['SDK 2.4, legacy', (heard: Heard) => connectSdk2Client(target(), heard, 'legacy')],
  ['SDK 2.4, modern', (heard: Heard) => connectSdk2Client(target(), heard, 'modern')],
] as const;

const namesOf = async (from: SdkClient): Promise<string[]> =>
  ((await from.request('tools/list')) as { tools: { name: string }[] }).tools.map(({ name }) => name);
const textOf = (result: Json) => (result.content as { text: string }[])[0]?.text;
const call = (from: SdkClient, name: string, args: Json = {}, options = {}) =>
  from.request('tools/call', { name, arguments: args }, options).then(textOf);

/** The tests share one worker process, and run in this order. */
describe.each(clients)('%s', (_name, connect) => {
  let own: SdkClient;
  beforeAll(async () => {
    await open();
    heard = [];
    own = client = await connect(heard);
  });
  afterAll(close);

  test('AC-P4 sees the tools of the host, and calls one', async () => {
    expect(await namesOf(own)).toEqual(['nova__click', 'web__fetch']);
    expect(await call(own, 'nova__click', { mark: 7 })).toBe('click {"mark":7}');
    expect(broker.host.ran).toMatchObject([{ server: 'nova', tool: 'click', session: { name: 'w1' } }]);
    await expect(call(own, 'nova__type')).rejects.toMatchObject({ code: -32602 });
    await expect(own.request('prompts/list')).rejects.toMatchObject({ code: -32601 });
    expect(broker.host.ran).toHaveLength(1);
  });

  test('AC-P8 a call waits while the host restarts; the last tools are listed meanwhile', async () => {
    await broker.stop();
    expect(await namesOf(own)).toEqual(['nova__click', 'web__fetch']);
    const second = call(own, 'nova__click', { n: 2 });
    await broker.start();
    expect(await second).toBe('click {"n":2}');
    expect(await call(own, 'nova__click', { n: 3 })).toBe('click {"n":3}');
    expect(broker.host.ran).toHaveLength(3);
  });

  test('receives progress, and changes of the tools', async () => {
    await own.listen();
    broker.host.onCall = (running) => {
      broker.host.progress(running, { progress: 1, total: 2 });
      return new Promise((resolve) => {
        setTimeout(() => resolve('done'), 50);
      });
    };
    expect(await call(own, 'web__fetch', {}, { onprogress: () => {} })).toBe('done');
    expect(heard.filter(({ method }) => method === 'notifications/progress')).toMatchObject([
      { params: { progress: 1, total: 2 } },
    ]);
    const told = () => heard.some(({ method }) => method === 'notifications/tools/list_changed');
    expect(told()).toBe(false);
    broker.change(['nova/click', 'web/fetch', 'web/search']);
    await eventually('the client is told', told);
    expect(await namesOf(own)).toEqual(['nova__click', 'web__fetch', 'web__search']);
  });

  test('receives errors of the host with code and facts', async () => {
    broker.host.onCall = () => {
      throw new HostError('circuit_open', "server 'nova' is unreachable", { server: 'nova', retryAfterMs: 250 });
    };
    expect(await own.request('tools/call', { name: 'nova__click', arguments: {} })).toMatchObject({
      isError: true,
      _meta: { 'hostler/error': { code: 'circuit_open', retryable: true, retryAfterMs: 250 } },
    });
  });
});

describe('the process', () => {
  beforeEach(open);
  afterEach(close);

  test('answers tools/list with an error while no tools are known, and with the last tools after that', async () => {
    await broker.stop();
    heard = [];
    client = await connectSdk1Client(target(), heard);
    await expect(namesOf(client)).rejects.toThrow('nothing listens');
    await broker.start();
    await eventually('the client is told', () =>
      heard.some(({ method }) => method === 'notifications/tools/list_changed'),
    );
    expect(await namesOf(client)).toEqual(['nova__click', 'web__fetch']);
    await client.close();
    await broker.stop();
    client = await connectSdk1Client(target(), []);
    expect(await namesOf(client)).toEqual(['nova__click', 'web__fetch']);
  }, 30_000);

  const start = (args: readonly string[], env: Record<string, string> = {}) => {
    running = new Running(['worker', ...args], { ...broker.env, ...env });
    return running;
  };

  test('says on stderr that it is connected, never its key, and ends with its client', async () => {
    const worker = start(['--broker', broker.url, '--json'], { HOSTLER_KEY: workerKey });
    await eventually('it is ready', () => /is connected.*"ready":true.*\n/s.test(worker.stderr));
    const line = worker.stderr.split('\n').find((each) => each.startsWith('{')) as string;
    expect(JSON.parse(line)).toEqual({ ready: true, worker: 'w1', role: 'reader', tools: 2, pid: worker.child.pid });
    expect(worker.stderr).toMatch(/info +worker 'w1' is connected, 2 tools/);
    worker.child.stdin?.end();
    const { code, stdout, stderr } = await worker.closed;
    expect([code, stdout, stderr.includes(workerKey)]).toEqual([0, '', false]);
    await eventually('the broker sees it go', () => broker.connections === 0);
  });

  test('says that its key is refused, never the key itself', async () => {
    broker.revoke();
    const worker = start(['--broker', broker.url, '--key-file', broker.keyFile]);
    await eventually('it says so', () => worker.stderr.includes('the broker refused the key of this worker'));
    expect(worker.stderr).not.toContain(workerKey);
    worker.child.stdin?.end();
    const { stdout } = await worker.closed;
    expect(stdout).toBe('');
  });

  test('answers calls with the reason when its key is revoked', async () => {
    client = await connectSdk1Client(target(), []);
    expect(await call(client, 'nova__click')).toBe('click {}');
    broker.revoke();
    const refused = client;
    const result = await eventually('a call is refused', async () => {
      const said = await refused.request('tools/call', { name: 'nova__click', arguments: {} });
      return said.isError === true && said;
    });
    expect(result).toMatchObject({ _meta: { 'hostler/error': { code: 'needs_reauth', retryable: false } } });
  });

  test('refuses an address with another scheme', async () => {
    const { code, stderr } = await start(['--broker', 'http://127.0.0.1:1'], { HOSTLER_KEY: workerKey }).closed;
    expect(code).toBe(2);
    expect(stderr).toContain('must begin with ws://');
  });

  test('ends at SIGTERM', async () => {
    const worker = start(['--broker', broker.url, '--json'], { HOSTLER_KEY_FILE: broker.keyFile });
    await eventually('it is ready', () => worker.stderr.includes('"ready":true'));
    worker.child.kill('SIGTERM');
    expect((await worker.closed).code).toBe(0);
  });
});
