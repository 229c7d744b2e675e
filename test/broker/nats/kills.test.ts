/**
 * Servers killed, hosts killed and connections cut under load. Truth is the ledger: what was run is written there by whoever
 * runs it, dead or alive.
 */
import { randomBytes } from 'node:crypto';
import { connect } from '@nats-io/transport-node';
import { expect, test } from 'vitest';
import { eventually } from '../../eventually.js';
import { startNatsServer } from '../../fakes/nats-server.js';
import { type RigHost, type RigWorker, request, startHost, startWorker } from './nats-rig.js';
import { type TcpCut, tcpCut } from './tcp-cut.js';

const kills = Number(process.env.NATS_KILLS ?? 9);
const inFlight = 16;
const ackWaitMs = 1_000;

interface Running {
  readonly rig: RigHost;
  readonly way: TcpCut;
}

test('B2 kills of the server, of hosts and of connections: nothing held is lost, nothing is run twice', async () => {
  await using server = await startNatsServer();
  const ledger: string[] = [];
  let nextHost = 0;
  let isOver = false;

  const run = async (delivery: { readonly id: string }) => {
    ledger.push(delivery.id);
    await new Promise((resolve) => setTimeout(resolve, 2));
  };
  const openHost = (): Promise<Running> =>
    eventually('a host', async () => {
      const way = await tcpCut(server.port);
      try {
        const rig = await startHost({ url: way.url, instance: `h${nextHost++}`, ackWaitMs, laneWindow: 32, run });
        return { rig, way };
      } catch {
        await way.close();
        return undefined;
      }
    });
  const hosts = [await openHost(), await openHost()];
  /** Its link comes back as long as it lives: what the service does. */
  const keepServing = async (at: number, running: Running): Promise<void> => {
    for (;;) {
      await running.rig.link.closed;
      if (isOver || hosts[at] !== running) return;
      const reopen = () =>
        running.rig.reopen().then(
          () => true,
          () => isOver || hosts[at] !== running,
        );
      await eventually('to be back', reopen, 60_000);
    }
  };
  hosts.forEach((running, at) => void keepServing(at, running));

  let worker: RigWorker = await startWorker(server.url);
  /** As an executor does: the same key until there is an answer. */
  const answers = new Map<string, string>();
  const call = async (): Promise<void> => {
    const id = randomBytes(8).toString('hex');
    while (!answers.has(id)) {
      const using = worker;
      await using.link.send(request(id, { id }, 600_000)).catch(() => {});
      const said = await eventually(
        'an answer, or a loss',
        () => using.bodyOf(id) ?? (using !== worker && 'lost'),
        60_000,
      );
      if (said !== 'lost') answers.set(id, said);
    }
  };
  const keepWorker = async (): Promise<void> => {
    await worker.link.closed;
    if (isOver) return;
    worker = await eventually('a worker', () => startWorker(server.url).catch(() => undefined));
    void keepWorker();
  };
  void keepWorker();
  const load = Array.from({ length: inFlight }, async () => {
    while (!isOver) await call();
  });

  for (let kill = 0; kill < kills; kill++) {
    const before = answers.size;
    await eventually('calls to go on', () => answers.size > before + inFlight, 60_000);
    const victim = hosts[kill % 2] as Running;
    if (kill % 3 === 0) {
      await server.kill();
      await server.start();
    } else if (kill % 3 === 1) {
      // Dead: what it runs goes on in memory, but nobody hears of it any more.
      const at = kill % 2;
      await victim.way.close();
      const next = await openHost();
      hosts[at] = next;
      void keepServing(at, next);
    } else victim.way.cut();
  }
  isOver = true;
  await Promise.all(load);
  await worker.link.close();
  // Killed between an answer and its next note, the server counts what it does not hold; the next host has that forgotten.
  hosts.push(await openHost());
  const connection = await connect({ servers: server.url });
  await eventually(
    'nothing to be counted as handed out',
    async () => {
      const said = await connection.request('$JS.API.CONSUMER.INFO.HOSTLER_REQUESTS_w1.hosts');
      return said.json<{ num_ack_pending: number }>().num_ack_pending === 0;
    },
    90_000,
  );
  await connection.close();
  await Promise.all(hosts.map(({ rig }) => rig.host.close()));
  await Promise.all(hosts.map(({ way }) => way.close()));

  const twice = ledger.filter((id, at) => ledger.indexOf(id) !== at);
  expect(twice).toEqual([]);
  const ran = new Set(ledger);
  const lost = [...answers.values()].filter((body) => !body.startsWith('{"ran"')).length;
  for (const [id, body] of answers) {
    if (body === `{"ran":{"id":"${id}"}}`) expect(ran.has(id)).toBe(true);
    else expect(body).toMatch(/^\{"lost":true\}$|"outcome_uncertain"/);
  }
  expect(answers.size).toBeGreaterThan(kills * inFlight);
  console.log(
    `${kills} kills, ${answers.size} calls answered, ${lost} of them uncertain, ${ledger.length} runs, 0 twice`,
  );
}, 3_600_000);
