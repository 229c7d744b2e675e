/** A worker whose role the configuration does not list: host and worker say so. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { eventually } from '../../eventually.js';
import { BrokerPlace, type BrokerReady, hashOf, newKey } from './broker-place.js';

let place: BrokerPlace;
beforeEach(() => {
  place = new BrokerPlace();
});
afterEach(() => place.remove());

test('E22 the log, status, why and the worker itself name the role that is not listed', async () => {
  const key = newKey();
  place.configure({
    mcpServers: { ledger: place.ledgerEntry('ledger') },
    roles: { all: { allow: ['ledger/*'] } },
    keys: { ann: { hash: hashOf(key), worker: 'ann', role: 'ops' } },
    broker: { listen: { port: 0 } },
  });
  const up = place.up();
  const { broker } = (await up.ready()) as BrokerReady;
  const worker = await place.worker(broker, key);
  const message = "role 'ops' is not listed: this worker may use nothing";
  expect(worker.status()).toMatchObject({ state: 'ready', tools: 0, lastError: { code: 'denied', message } });
  await expect(worker.execute(undefined, 'work', {})).rejects.toMatchObject({ code: 'denied', message });

  const lines = () => up.stderr.split('\n').filter((line) => line.includes("role 'ops' is not listed"));
  await eventually('the log says so', () => lines().length > 0);
  await worker.execute(undefined, 'work', {}).catch(() => {});
  const [status, why] = await Promise.all([place.hostler('status'), place.hostler('why', 'ledger', '--role', 'ops')]);
  expect(status.stdout).toContain("! role 'ops' is not listed: key 'ann' may use nothing");
  expect(why.stdout).toContain("role 'ops' is not listed");
  expect(lines()).toEqual([expect.stringContaining('keys.ann.role')]);
});
