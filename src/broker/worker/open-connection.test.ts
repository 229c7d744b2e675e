import { describe, expect, test } from 'vitest';
import type { HostError } from '../../kernel/errors.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { openConnection } from './connect-worker.js';

const transport = (broker: string) => openConnection({ broker, key: 'secret-key', clock: new FakeClock() });

describe('the address of a broker', () => {
  test.each(['ws://127.0.0.1:1/', 'wss://broker.example/x'])('%s chooses WebSocket', async (broker) => {
    expect(await transport(broker)).toBeTypeOf('function');
  });

  test('may be one of another machine without TLS if the caller says insecure', async () => {
    const address = { broker: 'ws://broker.example/broker', key: 'secret-key', clock: new FakeClock() };
    expect(await openConnection({ ...address, insecure: true })).toBeTypeOf('function');
  });

  test.each(['ws://broker.example/broker', 'nats://broker.example:4222/w'])(
    'that would send the key in the clear to another machine is refused before anything is opened: %s',
    async (broker) => {
      await expect(transport(broker)).rejects.toMatchObject({
        ...{ code: 'invalid_spec', message: expect.stringContaining('in the clear') },
      });
    },
  );

  test.each([
    ['is no URL', 'nothing'],
    ['has another scheme', 'https://user:pass@broker.example/'],
    ['does not name the worker', 'nats://host:4222'],
    ['has a name that is not valid', 'nats://host:4222/Worker 1'],
    ['has a password', 'nats://user:pass@host:4222/w'],
    ['has a password for WebSocket', 'ws://user:pass@127.0.0.1/broker'],
    ['has a query', 'ws://127.0.0.1/broker?key=user:pass'],
    ['has a fragment', 'nats://127.0.0.1:4222/w#user:pass'],
  ])('that %s is refused, and not quoted', async (_what, broker) => {
    const error = (await transport(broker).catch((caught) => caught)) as HostError;
    expect(error).toMatchObject({ code: 'invalid_spec', details: { field: 'broker' } });
    expect(JSON.stringify(error)).not.toMatch(/user:pass|secret-key/);
  });
});
