/** Calls that wait for a refused port have their outcome when the stop of their server, or the close of their host, resolves. */
import { expect, onTestFinished, test } from 'vitest';
import { createHost } from '../../src/host/host.js';
import { isHostError } from '../../src/kernel/errors.js';
import { eventually } from '../eventually.js';
import { LimitedHttpServer } from '../fakes/limited-http-server.js';

test.each(['stop', 'close'] as const)(
  'AC-H21 calls that wait for a refused port end before %s resolves',
  async (how) => {
    const server = await LimitedHttpServer.open();
    const host = await createHost({ mcpServers: { a: { url: server.url, breaker: { threshold: 100 } } } });
    onTestFinished(async () => {
      await host.close();
      await server.closePort();
    });
    await host.call('a', 'write', {});
    await server.closePort();
    let replays = 0;
    host.on('replay', () => replays++);
    const outcomes: string[] = [];
    for (let i = 0; i < 10; i++)
      host.call('a', 'write', {}, { deadlineMs: 60_000 }).then(
        () => outcomes.push('answered'),
        (error) => outcomes.push(isHostError(error) ? `${error.code} ${error.details.execution}` : String(error)),
      );
    await eventually('a call has tried again', () => replays > 0);
    expect(outcomes).toEqual([]);
    await (how === 'stop' ? host.stop('a') : host.close());
    expect(outcomes).toEqual(Array(10).fill('server_stopped not_executed'));
  },
);
