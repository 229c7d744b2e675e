import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { eventually } from '../../../test/eventually.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import type { Welcome } from '../relay/hello.js';
import { openLink } from '../relay/open-link.js';
import { openRelaySocket } from './relay-socket.js';

const welcome: Welcome = { hostler: 1, version: '1.0.0', pid: 1, url: null, config: '/a', notes: [] };

async function opened(clientsMax: number) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-socket-'));
  const [file, clock] = [path.join(folder, 'stdio.sock'), new FakeClock()];
  const relays = await openRelaySocket({
    ...{ file, clock, clientsMax },
    welcome: (_hello, fullAt) =>
      fullAt === undefined ? welcome : { ...welcome, refused: 'full', notes: [`${fullAt} clients are the most`] },
    serve: (socket) =>
      new Promise((resolve) => {
        for (const event of ['end', 'close']) socket.once(event, () => resolve());
        socket.resume();
      }),
  });
  onTestFinished(async () => {
    await relays.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const join = async (client: string) => {
    const hello = { hostler: 1, version: '1.0.0', client, config: '/a', env: {}, options: {} };
    const link = await openLink(file, hello, clock);
    if (link.kind === 'connected') onTestFinished(() => void link.socket.destroy());
    return link;
  };
  return { file, relays, join };
}

test('R1 a relay beyond the maximum of clients gets the reason at each try', async () => {
  const { relays, join } = await opened(1);
  const first = await join('a');
  // More tries than there may be connections without a welcome.
  for (let tries = 0; tries < 100; tries++)
    expect(await join('b')).toEqual({ kind: 'failed', reason: '1 clients are the most' });
  // The same client on another connection needs no place of its own.
  expect((await join('a')).kind).toBe('connected');
  if (first.kind === 'connected') first.socket.destroy();
  expect(relays.count).toBe(1);
});

test('R1 a client that left makes room for another', async () => {
  const { relays, join } = await opened(1);
  const first = await join('a');
  if (first.kind === 'connected') first.socket.destroy();
  await eventually('the client has left', () => relays.count === 0);
  expect((await join('b')).kind).toBe('connected');
});

test('R1 a removed socket is made again while the host runs, and not when it ends', async () => {
  const { file, relays, join } = await opened(2);
  expect(await relays.restore()).toBe(false);
  const first = await join('a');
  rmSync(file);
  expect((await join('b')).kind).toBe('absent');
  expect(await relays.restore()).toBe(true);
  expect([(await join('b')).kind, relays.count, first.kind === 'connected' && first.socket.destroyed]).toEqual([
    ...['connected', 2, false],
  ]);
  await relays.close();
  expect([await relays.restore(), existsSync(file)]).toEqual([false, false]);
});
