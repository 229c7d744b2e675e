/** Workers over every real engine, against a scripted host: what they do over the engine within one process, they do here. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { connectWorker } from '../../../src/broker/worker/connect-worker.js';
import type { RemoteTools } from '../../../src/broker/worker/remote-tools.js';
import type { HostError } from '../../../src/kernel/errors.js';
import { type Bench, engines, type WorkerName, workers } from '../../contract/broker/engines.js';
import { eventually } from '../../eventually.js';
import { ScriptedHost } from '../../fakes/scripted-host.js';
import { outcomeOf } from './worker-rig.js';

const all = ['web/fetch_url', 'nova/nova_screenshot', 'nova/nova_click'];
const slowMs = 60_000;

describe.each(engines.map((engine) => [engine.name, engine] as const))('%s', (_name, engine) => {
  let bench: Bench;
  let host: ScriptedHost;
  const connected: RemoteTools[] = [];

  beforeEach(async () => {
    bench = await engine.open();
    host = new ScriptedHost(bench.openHost, {
      tools: ({ mailbox }) => (workers[mailbox as WorkerName] === 'researcher' ? all.slice(0, 1) : all),
    });
    await host.connect();
  }, slowMs);
  afterEach(async () => {
    for (const tools of connected.splice(0)) await tools.close();
    await host.close().catch(() => {});
    await bench.close();
  }, slowMs);

  const connect = async (name: WorkerName, options = {}): Promise<RemoteTools> => {
    const tools = await connectWorker({ open: bench.openWorker(name), connectMs: 30_000, ...options });
    connected.push(tools);
    return tools;
  };
  const names = (tools: RemoteTools) => tools.list().map(({ name }) => name);

  test(
    'AC-P4 a worker sees a tool, calls it, and does not find another',
    async () => {
      const tools = await connect('carol');
      const result = await tools.execute(undefined, 'nova_click', { mark: 7 });
      expect(result.json()).toEqual({ content: [{ type: 'text', text: 'nova_click {"mark":7}' }] });
      expect(await outcomeOf(tools.execute(undefined, 'nova_type', {}))).toBe('tool_not_found not_executed');
      expect(host.ran).toMatchObject([{ server: 'nova', from: { mailbox: 'carol' } }]);
    },
    slowMs,
  );

  test(
    'AC-P5 eight calls at once each get their own answer',
    async () => {
      const tools = await connect('bob');
      const calls = Array.from({ length: 8 }, (_, n) => outcomeOf(tools.execute('nova', 'nova_click', { n })));
      expect(await Promise.all(calls)).toEqual(Array.from({ length: 8 }, (_, n) => `nova_click {"n":${n}}`));
    },
    slowMs,
  );

  test(
    'AC-P6 four calls overlap',
    async () => {
      const tools = await connect('bob');
      let running = 0;
      let most = 0;
      let open: () => void = () => {};
      const four = new Promise<void>((resolve) => {
        open = resolve;
      });
      host.onCall = async () => {
        most = Math.max(most, ++running);
        if (running === 4) open();
        await four;
        running--;
        return '{"content":[]}';
      };
      await Promise.all(Array.from({ length: 4 }, (_, n) => tools.execute('nova', 'nova_click', { n })));
      expect(most).toBe(4);
    },
    slowMs,
  );

  test(
    'AC-P8 a broker that is started anew costs a call time, and nothing else',
    async () => {
      const tools = await connect('bob');
      expect(await outcomeOf(tools.execute('nova', 'nova_click', { n: 1 }))).toBe('nova_click {"n":1}');
      await bench.restart();
      const second = outcomeOf(tools.execute('nova', 'nova_click', { n: 2 }));
      await host.connect();
      expect(await second).toBe('nova_click {"n":2}');
      expect(await outcomeOf(tools.execute('nova', 'nova_click', { n: 3 }))).toBe('nova_click {"n":3}');
      expect(tools.status().connections).toBeGreaterThanOrEqual(2);
      expect(host.ran).toHaveLength(3);
    },
    slowMs,
  );

  test(
    'D-41 a call under way when the broker is killed is run once',
    async () => {
      const tools = await connect('bob');
      let finish: (result: string) => void = () => {};
      host.onCall = () =>
        new Promise((resolve) => {
          finish = resolve;
        });
      const call = outcomeOf(tools.execute('nova', 'nova_click', {}));
      await eventually('it runs', () => host.ran.length === 1);
      await bench.restart();
      finish('{"content":[{"type":"text","text":"once"}]}');
      await host.connect();
      expect(await call).toBe('once');
      expect(host.ran).toHaveLength(1);
    },
    slowMs,
  );

  test(
    'AC-P9 a worker with a role sees what is for it, and one without sees all',
    async () => {
      const researcher = await connect('alice');
      expect(names(researcher)).toEqual(['fetch_url']);
      expect(await outcomeOf(researcher.execute(undefined, 'nova_screenshot', {}))).toBe('tool_not_found not_executed');
      expect(names(await connect('carol'))).toEqual(['fetch_url', 'nova_screenshot', 'nova_click']);
      expect(host.ran).toEqual([]);
    },
    slowMs,
  );

  test(
    'D-45 a call that is given up is cancelled at the host',
    async () => {
      const tools = await connect('bob');
      host.onCall = () => new Promise(() => {});
      const abort = new AbortController();
      const call = outcomeOf(tools.execute('nova', 'nova_click', {}, { signal: abort.signal }));
      await eventually('it runs', () => host.ran.length === 1);
      abort.abort();
      expect(await call).toBe('cancelled uncertain');
      await eventually('the host is told', () => host.cancelled.length === 1);
      expect(host.cancelled).toEqual([`bob/${host.ran[0]?.key}`]);
    },
    slowMs,
  );

  test(
    'D-50 a key that nobody has is final',
    async () => {
      const refused = await connectWorker({ open: bench.openStranger, connectMs: 30_000 }).catch(
        (error: HostError) => error,
      );
      expect(refused).toMatchObject({ code: 'unauthenticated' });
    },
    slowMs,
  );

  test(
    'AC-P4 in the words of older workers and hosts it is the same',
    async () => {
      await host.close();
      const older = new ScriptedHost(bench.openHost, { tools: ['nova/nova_click'], isOlder: true });
      await older.connect();
      const tools = await connect('carol', { compat: true });
      expect(names(tools)).toEqual(['nova_click']);
      expect(await outcomeOf(tools.execute(undefined, 'nova_click', { mark: 7 }))).toBe('nova_click {"mark":7}');
      await older.close();
    },
    slowMs,
  );

  test(
    'news of the host reach a worker',
    async () => {
      const tools = await connect('bob');
      const heard: string[] = [];
      host.onCall = async ({ key }) => {
        host.progress('bob', key, { progress: 1 });
        await eventually('progress was heard', () => heard.length > 0);
        return '{"content":[{"type":"text","text":"done"}]}';
      };
      const onProgress = (params: Buffer) => void heard.push(params.toString());
      expect(await outcomeOf(tools.execute('nova', 'nova_click', {}, { onProgress }))).toBe('done');
      expect(heard).toEqual(['{"progress":1}']);
      const changed = new Promise((resolve) => tools.on('manifest', resolve));
      host.change(['web/search']);
      await changed;
      expect(names(tools)).toEqual(['search']);
    },
    slowMs,
  );
});
