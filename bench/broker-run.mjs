/**
 * One client of the broker benchmark, in a separate process. Prints one line of JSON: operations per second and median latency.
 * Arguments: kind, concurrency, seconds, address, key.
 *   call      whole calls through the worker library    slow-call the same, to the server whose tool waits
 *   receipts  receipts of the embedded log, one client for each key
 *   ws-echo   a raw WebSocket and its echo              nats      a raw request of NATS and its reply
 *   claim     a bare create and update of a row in NATS KV
 *   receipts-host, ws-server, nats-responder: the servers for these clients; each prints a line when it is ready, and exits when its
 *   stdin ends
 */
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';

const [kind, concurrency, seconds, address, key] = [
  process.argv[2],
  Number(process.argv[3]),
  Number(process.argv[4]),
  process.argv[5],
  process.argv[6],
];
const payload = JSON.stringify({ text: 'sixty bytes of text, more or less, as a small call has' });
const warmMs = 700;

/** `once` runs one operation and resolves when it is done. */
async function load(once, lanes = concurrency) {
  const took = [];
  let isOver = false;
  let isCounted = false;
  const running = Array.from({ length: lanes }, async (_, lane) => {
    while (!isOver) {
      const startedMs = performance.now();
      await once(lane);
      if (isCounted && !isOver) took.push(performance.now() - startedMs);
    }
  });
  await sleep(warmMs);
  isCounted = true;
  const startedMs = performance.now();
  await sleep(seconds * 1_000);
  isOver = true;
  const perSecond = (took.length * 1_000) / (performance.now() - startedMs);
  await Promise.all(running);
  took.sort((a, b) => a - b);
  const at = (share) => took[Math.floor(took.length * share)] ?? Number.NaN;
  console.log(JSON.stringify({ perSecond, p50Ms: at(0.5), p99Ms: at(0.99) }));
}

/** Whole calls to the tool `echo` of this server. */
async function callTo(server) {
  const { connect } = await import('../dist/broker/worker/index.js');
  const remote = await connect({ broker: address, key });
  const once = () => remote.execute(server, 'echo', payload, { deadlineMs: 30_000 });
  await once();
  await load(once);
  await remote.close();
}

const kinds = {
  call: () => callTo('echo'),
  'slow-call': () => callTo('slow'),
  /** A receipt is counted when it arrives; as in a worker, the reply is acknowledged in the background. */
  async receipts() {
    const { openWebSocketConnection } = await import('../dist/broker/websocket/worker-connection.js');
    const { systemClock } = await import('../dist/kernel/clock.js');
    const { Cancellation } = await import('../dist/kernel/cancel-signal.js');
    const clients = await Promise.all(
      key.split(',').map(async (each, at) => {
        const client = { acked: [], calls: new Map() };
        const heard = (message) => {
          if (message.op === 'reply') client.acked.push(message.key);
          if (message.op !== 'receipt' && message.op !== 'refused') return;
          client.calls.get(message.key)(message.op === 'receipt');
          client.calls.delete(message.key);
        };
        const open = openWebSocketConnection({ url: address, key: each, clock: systemClock });
        client.connection = await open({
          ...{ session: `bench-${process.pid}-${at}`, heard, signal: new Cancellation() },
        });
        return client;
      }),
    );
    const flush = setInterval(() => {
      for (const client of clients)
        while (client.acked.length > 0) client.connection.send({ op: 'ack', keys: client.acked.splice(0, 256) });
    }, 2);
    const args = Buffer.from(payload);
    const none = { sentBefore: undefined, isCallersKey: false, wantsProgress: false, manifestRevision: undefined };
    let number = 0;
    await load(async (lane) => {
      const { connection, calls } = clients[lane % clients.length];
      const call = { key: `b${process.pid}-${number++}`, deadlineMs: 60_000, server: 'echo', tool: 'echo', args };
      // A worker may have 256 calls that are not acknowledged.
      const isReceived = new Promise((resolve) => void calls.set(call.key, resolve));
      connection.send({ op: 'call', ...none, ...call, trace: undefined });
      if (!(await isReceived)) await sleep(1);
    }, clients.length * concurrency);
    clearInterval(flush);
    for (const { connection } of clients) await connection.close();
  },
  async 'receipts-host'() {
    const { serveWorkers } = await import('../dist/broker/serve-workers.js');
    const { brokerEntry } = await import('../dist/config/broker-settings.js');
    const { readFileSync } = await import('node:fs');
    const result = { bytes: Buffer.from('{"content":[]}'), isError: false, era: 'legacy' };
    const served = await serveWorkers({
      host: {
        names: () => ['echo'],
        known: () => undefined,
        isAllowed: () => true,
        rulesRevision: 0,
        startupListing: () => undefined,
        onKnownChanged: () => () => {},
        mayRunTwice: () => false,
        call: async () => result,
      },
      settings: brokerEntry.parse({ listen: { port: 0 }, limits: { callsPerWorker: 192, bytesPerSecond: 1024 ** 3 } }),
      keys: JSON.parse(readFileSync(address, 'utf8')),
      onKeyProblem(problem) {
        throw problem;
      },
      dataDir: key,
    });
    console.log(JSON.stringify({ url: served.url }));
    await ended();
    await served.close();
  },
  /** The two writes that a call on NATS makes, without running a call. */
  async claim() {
    const { Kvm } = await import('@nats-io/kv');
    const connection = await asHost();
    const bucket = await new Kvm(connection).create('bench', { storage: 'file', history: 1 });
    let number = 0;
    await load(async () => {
      const row = `r${process.pid}-${number++}`;
      const version = await bucket.create(row, payload);
      await bucket.update(row, payload, version);
    });
    await connection.close();
  },
  async 'ws-echo'() {
    const { WebSocket } = await import('ws');
    const socket = new WebSocket(address, { perMessageDeflate: false });
    await new Promise((resolve) => socket.once('open', resolve));
    const waiting = [];
    socket.on('message', () => waiting.shift()());
    await load(
      () =>
        new Promise((resolve) => {
          waiting.push(resolve);
          socket.send(payload);
        }),
    );
    socket.close();
  },
  async nats() {
    const connection = await asHost();
    await load(() => connection.request('bench.echo', payload, { timeout: 30_000 }));
    await connection.close();
  },
  async 'ws-server'() {
    const { WebSocketServer } = await import('ws');
    const server = new WebSocketServer({ host: '127.0.0.1', port: 0, perMessageDeflate: false }, () =>
      console.log(JSON.stringify({ url: `ws://127.0.0.1:${server.address().port}` })),
    );
    server.on('connection', (socket) => socket.on('message', (data) => socket.send(data)));
    await ended();
  },
  async 'nats-responder'() {
    const connection = await asHost();
    connection.subscribe('bench.echo', { callback: (_, message) => message.respond(message.data) });
    await connection.flush();
    console.log('{}');
    await ended();
  },
};
async function asHost() {
  const { connect, nkeyAuthenticator } = await import('@nats-io/transport-node');
  return connect({ servers: address, authenticator: nkeyAuthenticator(new TextEncoder().encode(key)) });
}
const ended = () => new Promise((resolve) => process.stdin.resume().once('end', resolve));

await kinds[kind]();
process.exit(0);
