import { expect, test } from 'vitest';
import { FakeClock } from '../kernel/fake-clock.js';
import { createRedactor } from '../kernel/redact.js';
import { Connector } from '../session/connector.js';
import { Host } from './host.js';

test('E18 the status of a server whose start fails unexpectedly says why, without the secrets of the host', async () => {
  const clock = new FakeClock();
  const redactor = createRedactor(['top-secret-value']);
  const host = new Host({ clock, redactor }, (options) => {
    const connector = new Connector(options);
    connector.connect = () => Promise.reject(new TypeError('cannot use top-secret-value here'));
    return connector;
  });
  await host.open({ mcpServers: { docs: { command: 'docs', lazy: false } } });
  await clock.advanceAsync(0);
  expect(host.status()[0]?.lastError).toMatchObject({
    code: 'connect_failed',
    message: "server 'docs' could not be opened: unexpected error: TypeError: cannot use [REDACTED] here",
  });
  const closing = host.close();
  await clock.advanceAsync(10_000);
  await closing;
});
