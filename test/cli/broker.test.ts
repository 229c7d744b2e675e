/** `hostler broker` as a process, and `hostler status` of one that serves workers. */
import { afterAll, expect, test } from 'vitest';
import { Workplace } from './hostler-process.js';

const place = new Workplace();
afterAll(() => place.remove());

test('hostler broker says in one sentence what replaces it', async () => {
  const { code, stdout, stderr } = await place.hostler('broker', '--port', '1');
  expect([code, stdout]).toEqual([2, '']);
  expect(stderr).toContain('hostler up with "broker": {} serves workers itself, and several hosts use NATS');
});

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
