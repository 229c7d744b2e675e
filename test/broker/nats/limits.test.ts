/** How many calls of workers run at a time on a host over NATS: as many as its limits say, whoever sends how many. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openNatsWorkerLink } from '../../../src/broker/nats/nats-worker-link.js';
import { type ServedWorkers, serveWorkers } from '../../../src/broker/serve-workers.js';
import { connectWorker, type RemoteTools } from '../../../src/broker/worker/index.js';
import { brokerEntry } from '../../../src/config/broker-settings.js';
import type { KeyEntry } from '../../../src/config/keys.js';
import { eventually } from '../../eventually.js';
import { FakeUpstreams } from '../../fakes/fake-upstreams.js';
import { type NatsServerFake, startNatsServer } from '../../fakes/nats-server.js';

let server: NatsServerFake;
let served: ServedWorkers;
const opened: RemoteTools[] = [];
const calls: Promise<unknown>[] = [];
/** Ends all that run, and lets the rest through. */
let release = () => {};

beforeEach(async () => {
  server = await startNatsServer();
});
afterEach(async () => {
  release();
  await Promise.all(calls.splice(0));
  await Promise.all(opened.splice(0).map((worker) => worker.close()));
  await served.close();
  await server.stop();
});

/** Of a server whose tool `long` ends when it is released, and whose tool `quick` does at once. */
async function serve(limits: object, mailboxes: readonly string[]): Promise<readonly RemoteTools[]> {
  const gate = new Promise<void>((resolve) => {
    release = resolve;
  });
  const host = new FakeUpstreams({ s: { tools: ['long', 'quick'] } });
  host.onCall = async ({ tool }) => {
    if (tool === 'long') await gate;
    return '{"content":[]}';
  };
  const keyOf = (mailbox: string): KeyEntry => ({
    ...{ digest: undefined, role: 'all', expiresAtMs: undefined },
    mail: { mailbox, destinations: [], nkey: 'only NATS looks at it' },
  });
  served = await serveWorkers({
    host,
    settings: brokerEntry.parse({ url: server.url, durability: 'process', limits }),
    keys: new Map(mailboxes.map((mailbox) => [mailbox, keyOf(mailbox)])),
    dataDir: '/nowhere',
  });
  await eventually('its streams', () => served.status().service.isConnected);
  for (const mailbox of mailboxes)
    opened.push(await connectWorker({ open: openNatsWorkerLink({ url: server.url, mailbox }) }));
  return opened;
}

const flood = (worker: RemoteTools | undefined, count: number) => {
  for (let n = 0; n < count; n++)
    calls.push(worker?.execute('s', 'long', { n }, { deadlineMs: 60_000 }).catch((error) => error) as Promise<unknown>);
};
const running = () => served.status().service.running;

const several = [
  { calls: 256, callsPerWorker: 64 },
  { calls: 5, callsPerWorker: 2 },
  { calls: 300, callsPerWorker: 100 },
];

test.each(several)(
  'K8 workers with all that may run of one, and more behind it, leave the rest to others: %o',
  async (limits) => {
    const names = ['w1', 'w2', 'w3', 'quick'];
    const workers = await serve(limits, names);
    // One less than it takes to use all there is.
    const loud = workers.slice(0, Math.ceil(limits.calls / limits.callsPerWorker) - 1);
    for (const worker of loud) flood(worker, 300);
    await eventually('all that may run of each', () => running() === loud.length * limits.callsPerWorker);
    const quick = workers[3] as RemoteTools;
    for (let n = 0; n < 3; n++)
      await expect(quick.execute('s', 'quick', {}, { deadlineMs: 10_000 })).resolves.toBeDefined();
    // And as many as there is room for.
    flood(quick, 300);
    await eventually('all that may run', () => running() === limits.calls);
  },
);

test('limits above what is usual count too', async () => {
  const [worker] = await serve({ calls: 600, callsPerWorker: 300 }, ['w1']);
  flood(worker, 400);
  await eventually('all that may run of one', () => running() === 300);
});
