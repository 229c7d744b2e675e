/** After a host stood still, requests in its socket may be so old that the rows are gone which tell whether they ran. */
import { expect, test } from 'vitest';
import { Identities } from '../../../src/broker/identities.js';
import { HostTransport } from '../../../src/broker/nats/host-transport.js';
import { connectNats, TurnBatch } from '../../../src/broker/nats/nats-client.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { RecordingService } from '../../contract/broker/transports.js';
import { eventually } from '../../eventually.js';
import { keysOf, NatsStage, request } from './nats-rig.js';

test('calls that are read after a pause are dropped until the host has a new connection, and served after that', async () => {
  const stage = await NatsStage.start();
  const clock = new FakeClock();
  const host = new RecordingService();
  const connect = () =>
    connectNats({ url: stage.server.url, key: stage.hostPair.seed, name: 'host', reconnects: true });
  const [intake, connection] = [await connect(), await connect()];
  const identities = new Identities(keysOf([{ name: 'w1' }]), clock);
  const store = { id: 'store-1', seenToken: '1.t', checking: undefined, sawToken: () => {} };
  const transport = new HostTransport({
    ...{ intake, connection, handlers: host, identities, store, clock, batch: new TurnBatch() },
    onProblem: () => {},
  });
  try {
    await Promise.all([intake.flush(), connection.flush()]);
    const worker = await stage.connect('w1');
    await worker.connection.call(request('before'));
    let reconnects = 0;
    void (async () => {
      for await (const { type } of intake.status()) if (type === 'reconnect') reconnects++;
    })();
    clock.sleep(30_000);
    const stale = [1, 2, 3].map((at) => worker.connection.call(request(`stale${at}`)).catch((error) => error.code));
    await eventually('the connection is new', () => reconnects === 1);
    clock.advance(1_000);
    await eventually('calls are served', () =>
      worker.connection.call(request('after')).then(
        () => true,
        () => false,
      ),
    );
    expect(await Promise.all(stale)).toEqual(['transport', 'transport', 'transport']);
    expect(host.calls.map((call) => call.request.key)).toEqual(['before', 'after']);
  } finally {
    await transport.close();
    await Promise.all([intake.close(), connection.close()]);
    await stage.stop();
  }
}, 60_000);
