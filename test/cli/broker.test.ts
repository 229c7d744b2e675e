/** `hostler status` of a Hostler that serves workers. */
import { afterAll, expect, test } from 'vitest';
import { Workplace } from './hostler-process.js';

const place = new Workplace();
afterAll(() => place.remove());

test('status shows the broker: connected workers, waiting, running, uncertain', { timeout: 60_000 }, async () => {
  place.configure({ mcpServers: {}, broker: { listen: { port: 0 } } });
  const up = place.up();
  await up.ready();
  const { stdout } = await place.hostler('status');
  expect(stdout).toMatch(
    /\nbroker at ws:\/\/127\.0\.0\.1:\d+\/broker: 0 workers connected; 0 calls running, 0 waiting; 0 uncertain/,
  );
  const { stdout: json } = await place.hostler('status', '--json');
  expect(JSON.parse(json).broker).toMatchObject({ engine: 'embedded', isConnected: true, connectedWorkers: 0 });
});
