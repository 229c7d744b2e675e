import { describe, expect, test } from 'vitest';
import type { HostError } from '../../kernel/errors.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { engineOf } from './engine-of.js';

const engine = (broker: string) => engineOf({ broker, key: 'secret-key', clock: new FakeClock() });

describe('the address of a broker', () => {
  test.each(['ws://127.0.0.1:1/', 'wss://broker.example/x', 'nats://host:4222/worker-1', 'tls://host/w.1'])(
    '%s stands for an engine, which is not opened yet',
    async (broker) => {
      expect(await engine(broker)).toBeTypeOf('function');
    },
  );

  test.each([
    ['no address', 'nothing'],
    ['of no engine', 'https://user:pass@broker.example/'],
    ['without its mailbox', 'nats://host:4222'],
    ['with a mailbox that cannot be one', 'nats://host:4222/Worker 1'],
    ['with a password in it', 'nats://user:pass@host:4222/w'],
  ])('that is %s is refused, and not quoted', async (_what, broker) => {
    const error = (await engine(broker).catch((caught) => caught)) as HostError;
    expect(error).toMatchObject({ code: 'invalid_spec', details: { field: 'broker' } });
    expect(JSON.stringify(error)).not.toMatch(/user:pass|secret-key/);
  });
});
