/** What somebody with a good key can take from others. */
import { expect, test } from 'vitest';
import { coreBench, type Frame } from './core-bench.js';

const ids = (frames: readonly Frame[]) => frames.map(({ id }) => id);

test('one who fills the window of the host with slow calls does not keep out another', async () => {
  const { client, settle, core } = await coreBench({ rate: undefined });
  const host = client().subscribed('host');
  const alice = client().hello('alice');
  for (let n = 0; n < 300; n++) alice.request(`a${n}`);
  await settle();
  expect(host.of('message').length).toBe(96);
  client().hello('bob').request('b');
  await settle();
  expect(ids(host.of('message').slice(96))).toEqual(['b']);
  // A place of its own that comes free is used.
  host.ack(host.of('message')[3] as Frame);
  await settle();
  expect(ids(host.of('message').slice(97))).toEqual(['a96']);
  expect(core.status().held).toBe(97);
});
