/** Both ends of the control socket, over a real one. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { HostError } from '../../kernel/errors.js';
import { connectControl, fetchRunningFacts } from './control-client.js';
import { frameBytesMax } from './control-protocol.js';
import { type ControlServer, listenPrivately, type Operations, openControl } from './control-server.js';

let folder: string;
let file: string;
const servers: ControlServer[] = [];
beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-control-'));
  file = path.join(folder, 'control.sock');
});
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close();
  rmSync(folder, { recursive: true, force: true });
});

async function open(operations: Operations): Promise<ControlServer> {
  const server = await openControl(file, () => operations);
  servers.push(server);
  return server;
}

/** The bytes that the server sends to a client that writes `text`, until it closes the connection. */
function raw(text: string): Promise<string> {
  return new Promise((resolve) => {
    let received = '';
    const socket = connect(file, () => socket.write(text));
    socket.on('data', (chunk) => (received += chunk));
    socket.on('error', () => {});
    socket.once('close', () => resolve(received));
  });
}

test('a socket whose host accepts no connections for now is not stale: the host keeps the data directory', async () => {
  // A stalled host: the queue of the socket is full.
  const program =
    'use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un(shift)); listen(S, 0); $| = 1; print "ok\\n"; <STDIN>;';
  const stalled = spawn('perl', ['-e', program, file], { stdio: ['pipe', 'pipe', 'inherit'] });
  await once(stalled.stdout, 'data');
  const waiting: Socket[] = [];
  for (let code = ''; code === ''; ) {
    const socket = connect(file);
    waiting.push(socket);
    code = await new Promise<string>((resolve) => {
      socket.once('connect', () => resolve(''));
      socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? ''));
    });
    if (code !== '') expect(code).toBe('EAGAIN');
  }
  expect(await fetchRunningFacts(file)).toEqual({});
  await expect(open({})).rejects.toMatchObject({ details: { reason: 'in_use' } });
  expect(statSync(file).isSocket()).toBe(true);
  for (const socket of waiting) socket.destroy();
  stalled.stdin.end();
  await once(stalled, 'exit');
  // Without its process the socket is stale.
  expect(await fetchRunningFacts(file)).toBeUndefined();
  await open({});
});

test('a server that listens several times has one listener for errors', async () => {
  const server = createServer();
  for (let times = 0; times < 3; times++) {
    expect(await listenPrivately(server, file)).toBeUndefined();
    expect(server.listenerCount('error')).toBe(1);
    await new Promise((resolve) => server.close(resolve));
  }
});

test('the client of a request gets its events, then one result', async () => {
  await open({
    count: async ({ to }, { emit }) => {
      for (let n = 1; n <= Number(to); n++) emit(n);
      return { done: to };
    },
  });
  const client = await connectControl(file);
  const events: unknown[][] = [[], []];
  const results = await Promise.all(
    [2, 3].map((to, i) => client.request('count', { to }, (event) => events[i]?.push(event))),
  );
  client.close();
  expect([results, events]).toEqual([
    [{ done: 2 }, { done: 3 }],
    [
      [1, 2],
      [1, 2, 3],
    ],
  ]);
});

test('an error arrives with its code, details and hint, and without its cause', async () => {
  await open({
    fail: async () => {
      throw new HostError('server_parked', 'it is parked', {
        server: 'a',
        retryAfterMs: 5,
        hint: 'mend it',
        cause: 'x',
      });
    },
    break: async () => {
      throw new Error('a secret');
    },
  });
  const client = await connectControl(file);
  const error = (await client.request('fail').catch((thrown) => thrown)) as HostError;
  expect([error.code, error.message, error.hint, error.details, error.cause]).toEqual([
    'server_parked',
    'it is parked',
    'mend it',
    { server: 'a', retryAfterMs: 5 },
    undefined,
  ]);
  await expect(client.request('break')).rejects.toThrow('internal error of the running Hostler');
  await expect(client.request('nothing')).rejects.toThrow("has no operation 'nothing'");
  await expect(client.request('toString')).rejects.toThrow('has no operation');
  client.close();
});

test('without a host the hint names the log of the last host, if there is one', async () => {
  const hint = async () => ((await connectControl(file).catch((thrown) => thrown)) as HostError).hint;
  const start = `start one with: hostler up (looked for ${file}; choose another folder with --data-dir)`;
  expect(await hint()).toBe(start);
  const log = path.join(folder, 'host.log');
  writeFileSync(log, '');
  expect(await hint()).toBe(`${start}; the log of the last one that a client started: ${log}`);
});

test('operations end with their connection', async () => {
  let ended = () => {};
  const over = new Promise<void>((resolve) => {
    ended = resolve;
  });
  await open({
    wait: async (_request, { signal, emit }) => {
      signal.addEventListener('abort', ended);
      emit('begun');
      await over;
    },
  });
  const client = await connectControl(file);
  const answer = client.request('wait', {}, () => client.close());
  await expect(answer).rejects.toMatchObject({ code: 'transport' });
  await over;
});

describe('only the client that breaks the protocol is disconnected', () => {
  test.each([
    ['a text that is not JSON', 'hello\n'],
    ['a value that is not an object', '5\n'],
    ['a request without an id', '{"op":"version"}\n'],
    ['a request without an operation', '{"id":1}\n'],
    ['a line without an end', `{"id":1,"op":"${'x'.repeat(frameBytesMax)}`],
  ])('%s', async (_name, text) => {
    await open({ version: async () => ({ pid: 1 }) });
    const client = await connectControl(file);
    expect(await raw(text)).toBe('');
    expect(await client.request('version')).toEqual({ pid: 1 });
    client.close();
  });
});

test('too many requests at once are refused, and the others continue', async () => {
  let go = () => {};
  const gate = new Promise<void>((resolve) => {
    go = resolve;
  });
  await open({ wait: () => gate });
  const client = await connectControl(file);
  const asked = Array.from({ length: 17 }, () => client.request('wait').catch((error: HostError) => error.code));
  expect(await asked[16]).toBe('overloaded');
  go();
  expect(await Promise.all(asked.slice(0, 16))).toEqual(Array(16).fill(null));
  client.close();
});

describe('only one Hostler owns a data directory', () => {
  test('a second Hostler gets the pid of the first, which continues', async () => {
    await open({ version: async () => ({ pid: 4711 }) });
    await expect(open({})).rejects.toThrow('another Hostler (pid 4711) uses this data directory');
    expect(await fetchRunningFacts(file)).toEqual({ pid: 4711 });
  });

  test('a Hostler that does not answer correctly still owns it', async () => {
    await open({});
    await expect(open({})).rejects.toThrow('another Hostler uses this data directory');
  });

  test('if many start at once where a stale socket is left, exactly one owns the directory', async () => {
    // A stale socket: its process ended without closing it, as a killed process does.
    const leave = `require('net').createServer().listen(${JSON.stringify(file)}, () => process.kill(process.pid, 'SIGKILL'))`;
    await once(spawn(process.execPath, ['-e', leave]), 'exit');
    expect(statSync(file).isSocket()).toBe(true);
    const starts = await Promise.allSettled(
      Array.from({ length: 8 }, (_, pid) => open({ version: async () => ({ pid }) })),
    );
    expect(starts.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    const winner = starts.findIndex(({ status }) => status === 'fulfilled');
    expect(await fetchRunningFacts(file)).toEqual({ pid: winner });
  });

  test('a file at the path of the socket that is no socket is not removed', async () => {
    writeFileSync(file, 'mine');
    await expect(open({})).rejects.toThrow('cannot be opened (EADDRINUSE)');
    expect(statSync(file).size).toBe(4);
  });

  test('a socket in a folder that other users may write to gets no connection', async () => {
    await open({ version: async () => ({ pid: 4711 }) });
    chmodSync(folder, 0o777);
    await expect(connectControl(file)).rejects.toMatchObject({ details: { reason: 'others_may_write' } });
    expect(await fetchRunningFacts(file)).toBeUndefined();
    chmodSync(folder, 0o700);
    expect(await fetchRunningFacts(file)).toEqual({ pid: 4711 });
  });

  test('only its user can open the socket, and it is removed when the server closes', async () => {
    const server = await open({});
    expect(statSync(file).mode & 0o777).toBe(0o600);
    await server.close();
    expect(statSync(file, { throwIfNoEntry: false })).toBeUndefined();
    await expect(connectControl(file)).rejects.toMatchObject({ hint: expect.stringContaining('hostler up') });
    expect(await fetchRunningFacts(file)).toBeUndefined();
  });
});
