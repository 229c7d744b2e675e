/**
 * The error of an eager `spawn` whose server does not become ready: it has the cause and the next step, and says that the
 * server was removed.
 */
import { expect, onTestFinished, test } from 'vitest';
import type { HostError } from '../../src/kernel/errors.js';
import { json, startServer } from '../fakes/http-server.js';
import { failureOf } from './harness.js';
import { MoodyHost } from './moody-host.js';

async function empty(): Promise<MoodyHost> {
  const moody = MoodyHost.make();
  await moody.start({});
  return moody;
}

/** For every failure, the error mentions no remaining server and no later attempt. */
function expectGone({ host }: MoodyHost, { message, hint, details, retryable }: HostError): void {
  expect(host.status()).toEqual([]);
  expect(message).toContain("server 'x' could not be started; it is not registered (");
  expect(`${message} ${hint}`).not.toMatch(/parked|ejected|tried again|reload|reconnect/);
  expect(hint).toMatch(/; then spawn server 'x' again$/);
  expect([details.server, details.execution, details.retryAfterMs]).toEqual(['x', 'not_executed', undefined]);
  expect(typeof retryable).toBe('boolean');
}

test.each(['park', 'eject'] as const)('W22 a command that is missing, with "%s"', async (onExhausted) => {
  const moody = await empty();
  const error = await failureOf(moody.host.spawn({ name: 'x', command: 'no-such-command', restart: { onExhausted } }));
  expect([error.code, error.details.reason]).toEqual(['connect_failed', 'ENOENT']);
  expect(error.message).toContain('no-such-command');
  expectGone(moody, error);
});

test('W22 a server that exits at each start', async () => {
  const moody = await empty();
  const spec = { name: 'x', command: 'sh', args: ['-c', 'echo no licence >&2; exit 3'] };
  const error = await failureOf(moody.host.spawn(spec, { maxRestarts: 0 }));
  expect([error.code, error.details.reason, error.details.exitCode]).toEqual(['transport', 'exit', 3]);
  expect(error.message).toContain('no licence');
  expectGone(moody, error);
});

test('W22 a server that does not answer in time', async () => {
  const moody = await empty();
  moody.mood = 'silent';
  const spawned = failureOf(moody.host.spawn({ name: 'x', ...moody.entry() }));
  await moody.clock.advanceAsync(30_000);
  moody.mood = 'well';
  // The stop ladder ends the child, which takes time.
  for (let i = 0; i < 20; i++) await moody.clock.advanceAsync(1_000);
  const error = await spawned;
  expect([error.code, error.details.reason]).toEqual(['timeout', 'start_timeout']);
  expectGone(moody, error);
});

test('W22 a server that needs a login', async () => {
  const server = await startServer((_received, response) => json(response, {}, 401));
  onTestFinished(() => server.close());
  const moody = await empty();
  const error = await failureOf(moody.host.spawn({ name: 'x', url: server.url }));
  expect(error.code).toBe('needs_reauth');
  expectGone(moody, error);
});

test('W22 `ejected` is set for a server whose probes were stopped, and for no parked one; the card is shown as it is', async () => {
  const moody = MoodyHost.make();
  const card = 'https://example.com/card.json';
  const entry = { command: 'no-such-command', card };
  const parked = { ...entry, restart: { onExhausted: 'park' } };
  const ejected = { ...entry, restart: { onExhausted: 'eject' } };
  await moody.start({ mcpServers: { parked, ejected } });
  for (const name of ['parked', 'ejected']) await failureOf(moody.host.call(name, 'read', {}));
  const rows = moody.host
    .status()
    .map((row) => [row.name, row.state, row.ejected, row.nextProbeAt !== undefined, row.card]);
  expect(rows).toEqual([
    ['ejected', 'ejected', true, false, card],
    ['parked', 'parked', false, true, card],
  ]);
});
