/**
 * One client of the broker bench, in a process of its own. Prints one line of JSON: how many a second, and how long the median
 * took.
 * Arguments: kind, concurrency, seconds, address, key.
 *   call      whole calls through the executor          acks    receipts of the embedded broker, 16 clients
 *   ws-echo   a raw WebSocket and its echo              nats    a raw request of NATS and its reply
 *   ws-server, nats-responder: the other side of the last two; they print a line when they are there, and end with stdin
 */
import process from 'node:process';

const [kind, concurrency, seconds, address, key] = [
  process.argv[2],
  Number(process.argv[3]),
  Number(process.argv[4]),
  process.argv[5],
  process.argv[6],
];
const payload = JSON.stringify({ text: 'sixty bytes of text, more or less, as a small call has' });
const warmMs = 700;

/** `once` does one and resolves when it is done. */
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
  const nap = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  await nap(warmMs);
  isCounted = true;
  const startedMs = performance.now();
  await nap(seconds * 1_000);
  isOver = true;
  const perSecond = (took.length * 1_000) / (performance.now() - startedMs);
  await Promise.all(running);
  took.sort((a, b) => a - b);
  const at = (share) => took[Math.floor(took.length * share)] ?? Number.NaN;
  console.log(JSON.stringify({ perSecond, p50Ms: at(0.5), p99Ms: at(0.99) }));
}

const kinds = {
  async call() {
    const { connect } = await import('../dist/broker/worker/index.js');
    const remote = await connect({ broker: address, key });
    const once = () => remote.execute('echo', 'echo', payload, { deadlineMs: 30_000 });
    await once();
    await load(once);
    await remote.close();
  },
  async acks() {
    const { openWorkerLink } = await import('../dist/broker/embedded/worker-link.js');
    const { systemClock } = await import('../dist/kernel/clock.js');
    const handlers = { replied: () => {}, told: () => {} };
    const links = await Promise.all(
      key
        .split(',')
        .map((each) =>
          openWorkerLink({ url: address, key: each, clock: systemClock })(handlers, new AbortController().signal),
        ),
    );
    const body = Buffer.from(payload);
    let number = 0;
    await load(
      (lane) => links[lane % links.length].send({ id: `b${process.pid}-${number++}`, body, ttlMs: 60_000 }),
      links.length * concurrency,
    );
    for (const link of links) await link.close();
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
    const { connect } = await import('@nats-io/transport-node');
    const connection = await connect({ servers: address });
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
    const { connect } = await import('@nats-io/transport-node');
    const connection = await connect({ servers: address });
    connection.subscribe('bench.echo', { callback: (_, message) => message.respond(message.data) });
    await connection.flush();
    console.log('{}');
    await ended();
  },
};
const ended = () => new Promise((resolve) => process.stdin.resume().once('end', resolve));

await kinds[kind]();
process.exit(0);
