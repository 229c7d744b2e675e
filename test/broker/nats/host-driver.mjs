/**
 * A host on NATS in a separate process, so that a test can kill it. Its tools write a line into a ledger each time they run.
 * argv: JSON { url, key, workers: [{ name, epoch }], ledger, waitMs, replicas, unsafeReplicas, runningPerWorker }
 * Prints `ready <owner>` when it serves.
 */
import { appendFileSync } from 'node:fs';
import { Identities } from '../../../dist/broker/identities.js';
import { openNatsHost } from '../../../dist/broker/nats/nats-host.js';
import { BrokerService } from '../../../dist/broker/service/broker-service.js';
import { systemClock } from '../../../dist/kernel/clock.js';

const options = JSON.parse(process.argv[2]);
const { url, key, workers, ledger, waitMs = 0, replicas = 1, runningPerWorker = 64, concurrency = Infinity } = options;
const keys = new Map(
  workers.map((worker) => [
    worker.name,
    { digest: undefined, nkey: undefined, role: 'operator', expiresAtMs: undefined, worker, isHost: false },
  ]),
);
const onEvent = (event) => {
  if (event.kind === 'problem') process.stderr.write(`${event.error?.stack ?? event.error}\n`);
};
const identities = new Identities(keys, systemClock);
const nats = await openNatsHost({
  ...{ url, key, identities, clock: systemClock, onEvent, replicas, monitor: undefined, durability: 'process' },
  unsafeReplicas: options.unsafeReplicas,
});
const tools = ['run', 'again'].map((name) => ({
  key: name,
  raw: Buffer.from(JSON.stringify({ name })),
  isOversized: false,
}));
const known = {
  ...{ definition: { tools: { rename: {} } }, state: 'ready', isReady: true, facts: {}, revision: 1 },
  lists: new Map([['tools/list', { items: tools }]]),
};
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let running = 0;
const queue = [];
const host = {
  names: () => ['srv'],
  known: () => known,
  isAllowed: () => true,
  rulesRevision: 0,
  startupListing: () => undefined,
  onKnownChanged: () => () => {},
  mayRunTwice: (_server, tool) => tool === 'again',
  async call(_server, tool, args) {
    if (ledger) appendFileSync(ledger, `${tool} ${args}\n`);
    if (running >= concurrency) await new Promise((resolve) => queue.push(resolve));
    running++;
    const { bytes: size = 0 } = JSON.parse(args.toString());
    if (waitMs > 0) await wait(waitMs);
    running--;
    queue.shift()?.();
    const bytes = Buffer.from(`{"content":[],"text":"${'x'.repeat(size)}","ran":${args}}`);
    return { bytes, isError: false, era: 'modern', json: () => JSON.parse(bytes.toString()) };
  },
};
const service = new BrokerService({
  ...{ host, log: nats.log, clock: systemClock, onEvent, runningPerWorker },
  isRolelessAllowed: () => true,
});
const transport = await nats.open(service);
service.attach(transport);
process.stdout.write(`ready ${nats.log.owner}\n`);
process.on('SIGTERM', async () => {
  await transport.stop();
  await service.stop(0);
  service.close();
  await transport.close();
  await nats.close();
  process.exit(0);
});
