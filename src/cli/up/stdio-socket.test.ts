import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, type Server, type Socket } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { eventually } from '../../../test/eventually.js';
import { type Clock, systemClock } from '../../kernel/clock.js';
import { controlPath } from '../control/control-protocol.js';
import { openControl } from '../control/control-server.js';
import { findRunning, joinRunning, openStdioSocket, relayStdio, stdioPath } from './stdio-socket.js';
import type { UpOptions } from './up-options.js';

let dataDir: string;
const ends: (() => Promise<void>)[] = [];
beforeEach(() => {
  dataDir = mkdtempSync(path.join(os.tmpdir(), 'hostler-join-'));
});
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
  rmSync(dataDir, { recursive: true, force: true });
});

const neverAborted = new AbortController().signal;

test('repeated attempts to join leave no listeners on the streams', async () => {
  const [input, output] = [new PassThrough(), new PassThrough()];
  const listeners = () => [...input.eventNames(), ...output.eventNames()].length + output.listenerCount('error');
  const before = listeners();
  for (let i = 0; i < 12; i++) expect(await relayStdio(stdioPath(dataDir), input, output, neverAborted)).toBe(false);
  expect(listeners()).toBe(before);
  const { close } = await openStdioSocket(stdioPath(dataDir), async (socket) => void socket.end('bye'));
  ends.push(close);
  expect(await relayStdio(stdioPath(dataDir), input, output, neverAborted)).toBe(true);
  expect([String(output.read()), output.listenerCount('error')]).toEqual(['bye', 0]);
});

test('waiting for a Hostler that starts ends when it is gone', async () => {
  const options = { dataDir, config: 'a.json' } as UpOptions;
  const control = await openControl(controlPath(dataDir), () => ({
    version: async () => ({ pid: 1, config: 'a.json' }),
  }));
  expect(await findRunning(options, systemClock)).toMatchObject({ pid: 1 });
  let waits = 0;
  const at: Clock['at'] = (atMs, run) => {
    waits++;
    return systemClock.at(atMs, run);
  };
  const joined = joinRunning(options, { ...systemClock, at }, neverAborted);
  await control.close();
  expect([await joined, waits < 20]).toEqual([false, true]);
});

test('a connection that cannot be taken is no end of either socket', async () => {
  const servers = new Set<Server>();
  const accepted = (message: unknown) => {
    const { socket } = message as { readonly socket: Socket & { readonly server: Server } };
    servers.add(socket.server);
  };
  subscribe('net.server.socket', accepted);
  ends.push(async () => void unsubscribe('net.server.socket', accepted));
  const [stdio, control] = [stdioPath(dataDir), controlPath(dataDir)];
  ends.push((await openStdioSocket(stdio, async () => {})).close);
  ends.push((await openControl(control, () => ({}))).close);
  for (const file of [stdio, control]) {
    const client = connect(file);
    await once(client.resume(), 'connect');
    client.destroy();
  }
  await eventually('both have taken a client', () => servers.size === 2);
  // As the system does when it has no descriptors left, for each connection.
  for (const server of [...servers, ...servers]) expect(server.emit('error', new Error('EMFILE'))).toBe(true);
});
