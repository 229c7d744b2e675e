/** A worker at its bounds is refused before its call runs, and another worker is served. */
import { afterAll, expect, test } from 'vitest';
import { eventually } from '../../eventually.js';
import { BrokerPlace, type BrokerReady, hashOf, newKey } from './broker-place.js';
import { RawWorker } from './raw-worker.js';

const place = new BrokerPlace();
afterAll(() => place.remove());

test('AC-BR7 a worker with 256 calls not acknowledged is refused before the next one runs; another is served', {
  timeout: 60_000,
}, async () => {
  const keys = { ann: newKey(), bob: newKey() };
  place.configure({
    mcpServers: { books: place.ledgerEntry('books') },
    roles: { all: { allow: ['books/*'] } },
    keys: {
      ann: { hash: hashOf(keys.ann), worker: 'ann', role: 'all' },
      bob: { hash: hashOf(keys.bob), worker: 'bob', role: 'all' },
    },
    broker: { listen: { port: 0 } },
  });
  const { broker } = (await place.up().ready()) as BrokerReady;
  const ann = await RawWorker.joined(broker, keys.ann);
  const replies = () => ann.messages.filter(({ op }) => op === 'reply').length;
  for (let i = 0; i < 256; i++) ann.call(`ann-${i}`);
  await eventually('256 replies', () => replies() === 256);
  ann.call('one-more');
  const { error } = (await ann.heard('refused', 'one-more')) as { error: { code: string; retryAfterMs?: number } };
  expect(error).toMatchObject({ code: 'overloaded', retryAfterMs: expect.any(Number) });
  expect(place.ran('books')).not.toContain('one-more');
  const bob = await RawWorker.joined(broker, keys.bob);
  bob.call('of-bob');
  await bob.heard('reply', 'of-bob');
  // A reply that is acknowledged makes room.
  ann.say({ op: 'ack', keys: ['ann-0'] });
  let number = 0;
  await eventually('room', async () => {
    const key = `later-${number++}`;
    ann.call(key);
    return (await eventually('an answer', () => ann.messages.find((message) => message.key === key))).op === 'receipt';
  });
  ann.end();
  bob.end();
});
