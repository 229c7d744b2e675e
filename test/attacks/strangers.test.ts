/**
 * One principal cannot reach the tools outside its role, or the sessions, states of requests and streams of another.
 * X10 end to end: over every endpoint and method, and by the commands that accept a role. X8: sessions and states.
 */
import { statSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Attacked, type Json, keysAndRoles, LOW_KEY, messageOf, OTHER_KEY, type Reply } from './attacked.js';

const attacked = new Attacked();
const low = { key: LOW_KEY };
const other = { key: OTHER_KEY };
const operator = () => ({ key: attacked.ready.key });

beforeAll(async () => {
  await attacked.up({
    mcpServers: {
      open: attacked.stdioServer('open', 'modern'),
      secret: attacked.stdioServer('secret', 'legacy'),
      vault: attacked.stdioServer('vault', 'modern'),
    },
    groups: { mixed: ['open', 'secret', 'vault'], closed: ['secret', 'vault'] },
    ...keysAndRoles,
  });
  for (const name of ['open__echo', 'secret__echo', 'vault__echo'])
    await attacked.modern('tools/call', { name, arguments: { text: 'up' } }, operator());
});
afterAll(() => attacked.remove());

const namesIn = (reply: Reply): string[] =>
  Object.values(messageOf(reply).result ?? {}).flatMap((list) =>
    Array.isArray(list) ? (list as { name: string }[]).map(({ name }) => name) : [],
  );
/** A protocol error, or a result that is marked as an error. */
const isRefused = (reply: Reply): boolean => {
  if (reply.status >= 400) return true;
  const { error, result } = messageOf(reply);
  return error !== undefined || result?.isError === true;
};

describe('X10 a role that may call one tool', () => {
  const places = ['/mcp', '/mcp/open', '/mcp/@mixed'];

  test('X10 sees only this tool in every list of every endpoint, in both eras, and no other server', async () => {
    for (const place of places) {
      const session = await attacked.session({ ...low, path: place });
      for (const method of ['tools/list', 'prompts/list', 'resources/list', 'resources/templates/list']) {
        const modern = await attacked.modern(method, {}, { ...low, path: place });
        const legacy = await attacked.legacy(method, {}, { ...low, path: place, headers: session }, method);
        for (const reply of [modern, legacy]) {
          expect(reply.status).toBe(200);
          expect(reply.text).not.toMatch(/secret|vault|hidden|ask/);
          if (method === 'tools/list') expect(namesIn(reply)).toEqual([place === '/mcp/open' ? 'echo' : 'open__echo']);
        }
      }
      expect((await attacked.modern('server/discover', {}, { ...low, path: place })).text).not.toMatch(/secret|vault/);
    }
  });

  test.each(['/mcp/secret', '/mcp/vault', '/mcp/@closed', '/mcp/nobody', '/mcp/@nobody'])(
    'X10 gets no hint of %s',
    async (place) => {
      const replies = [
        await attacked.modern('tools/list', {}, { ...low, path: place }),
        await attacked.legacy(
          'initialize',
          { protocolVersion: '2025-11-25', capabilities: {} },
          { ...low, path: place },
        ),
        await attacked.send({ ...low, method: 'GET', path: place }),
        await attacked.send({ ...low, method: 'DELETE', path: place }),
      ];
      const unknown = await attacked.modern('tools/list', {}, { ...low, path: '/mcp/surely-not-there' });
      for (const { status, text } of replies) expect([status, text]).toEqual([404, unknown.text]);
    },
  );

  test('X10 can call nothing else: each name, method and era is refused, and no server receives a request', async () => {
    const lengths = () => Promise.all(['open', 'secret', 'vault'].map((name) => attacked.receivedBytes(name)));
    const before = await lengths();
    const names = ['secret__echo', 'secret__ask', 'vault__ask', 'open__ask', 'open__hidden', 'hidden', 'ask', 'echo'];
    const calls: [string, Json][] = [
      ...names.map((name): [string, Json] => ['tools/call', { name, arguments: {} }]),
      ...['secret__greet', 'vault__greet', 'open__greet', 'greet'].map((name): [string, Json] => [
        'prompts/get',
        { name },
      ]),
      ...['rec://one', 'rec://item/7', 'secret://x', 'rec://'].map((uri): [string, Json] => [
        'resources/read',
        { uri },
      ]),
      ...['secret__greet', 'open__greet'].map((name): [string, Json] => [
        'completion/complete',
        { ref: { type: 'ref/prompt', name }, argument: { name: 'a', value: '' } },
      ]),
      [
        'completion/complete',
        { ref: { type: 'ref/resource', uri: 'rec://item/{id}' }, argument: { name: 'id', value: '' } },
      ],
    ];
    const let_in: string[] = [];
    for (const place of ['/mcp', '/mcp/@mixed']) {
      const session = await attacked.session({ ...low, path: place });
      for (const [i, [method, params]] of calls.entries()) {
        const shown = `${place} ${method} ${JSON.stringify(params)}`;
        const modern = await attacked.modern(method, params, { ...low, path: place });
        if (!isRefused(modern)) let_in.push(`modern ${shown} ${modern.text}`);
        const legacy = await attacked.legacy(method, params, { ...low, path: place, headers: session }, i);
        if (!isRefused(legacy)) let_in.push(`legacy ${shown} ${legacy.text}`);
      }
      const subscribed = await attacked.legacy(
        'resources/subscribe',
        { uri: 'rec://one' },
        { ...low, path: place, headers: session },
        's',
      );
      if (!isRefused(subscribed)) let_in.push(`subscribe ${place} ${subscribed.text}`);
    }
    expect(let_in).toEqual([]);
    expect(await lengths()).toEqual(before);
  });

  test('X10 can listen to nothing else: the granted subscriptions name no resource', async () => {
    const { request } = await import('node:http');
    const { META } = await import('./attacked.js');
    const notifications = { toolsListChanged: true, resourceSubscriptions: ['rec://one', 'rec://item/1'] };
    const body = JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'subscriptions/listen',
      params: { notifications, _meta: META },
    });
    const said = await new Promise<string>((resolve, reject) => {
      const headers = {
        ...{ authorization: `Bearer ${LOW_KEY}`, 'content-type': 'application/json' },
        ...{ 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'subscriptions/listen' },
      };
      const sent = request(
        { host: '127.0.0.1', port: attacked.port, path: '/mcp', method: 'POST', headers },
        (response) => {
          response.setEncoding('utf8').once('data', (text: string) => {
            resolve(text);
            sent.destroy();
          });
          response.on('error', () => {});
        },
      );
      sent.on('error', reject);
      sent.end(body);
    });
    expect(said).toContain('acknowledged');
    expect(said).not.toContain('rec://');
  });

  test('X10 is logged for the operator', async () => {
    const why = async (what: string) => (await attacked.place.hostler('why', what, '--role', 'low')).stdout;
    expect(await why('open/echo')).toMatch(/^a call now +goes to the server/m);
    for (const what of ['secret/echo', 'open/hidden', 'vault/ask'])
      expect(await why(what)).toMatch(/^hidden .*\n[\s\S]*^a call now +is refused: .*role 'low'/m);
  });
});

describe('X8 sessions', () => {
  test('X8 a session of another key does not exist: post, stream, resumption, end and batch', async () => {
    const session = await attacked.session(other);
    const foreign = { ...session, 'last-event-id': '0-0' };
    for (const thief of [low, operator()]) {
      const replies = [
        await attacked.legacy('tools/list', {}, { ...thief, headers: session }),
        await attacked.send({
          ...thief,
          headers: session,
          body: '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
        }),
        await attacked.send({ ...thief, method: 'GET', headers: session }),
        await attacked.send({ ...thief, method: 'GET', headers: foreign }),
        await attacked.send({ ...thief, method: 'DELETE', headers: session }),
        await attacked.legacy('tools/list', {}, { ...other, path: '/mcp/open', headers: session }),
      ];
      expect(replies.map(({ status }) => status)).toEqual([404, 404, 404, 404, 404, 404]);
    }
    expect((await attacked.legacy('tools/list', {}, { ...other, headers: session })).status).toBe(200);
  });
});

describe('X8 states of requests', () => {
  const params = { name: 'vault__ask', arguments: { text: 'a' } };
  const inputResponses = { who: { action: 'accept', content: {} } };
  const stateOf = async (): Promise<string> => {
    const { result } = messageOf(await attacked.modern('tools/call', params, other));
    expect(result?.resultType).toBe('input_required');
    expect(result?.requestState).not.toContain('state-of-the-server');
    return result?.requestState as string;
  };

  test('X8 continues for its own caller', async () => {
    const requestState = await stateOf();
    const reply = await attacked.modern('tools/call', { ...params, inputResponses, requestState }, other);
    expect(reply.text).toContain('state-of-the-server');
  });

  test('X8 is refused with another key, endpoint, tool or arguments, and with a changed bit', async () => {
    const requestState = await stateOf();
    const before = await attacked.receivedBytes('vault');
    const flipped = (at: number) => {
      const bytes = Buffer.from(requestState, 'base64url');
      bytes[at % bytes.length] = (bytes[at % bytes.length] as number) ^ (1 << (at % 8));
      return bytes.toString('base64url');
    };
    const tries: [string, Json, { key: string }][] = [
      ['another key', { ...params, requestState }, operator()],
      ['a low key', { ...params, requestState }, low],
      ['another tool', { ...params, name: 'vault__echo', requestState }, other],
      ['another server', { ...params, name: 'open__ask', requestState }, other],
      ['other arguments', { ...params, arguments: { text: 'b' }, requestState }, other],
      ['nothing', { ...params, requestState: '' }, other],
      ['what the server said', { ...params, requestState: 'state-of-the-server' }, other],
      ['much', { ...params, requestState: requestState.repeat(1_000) }, other],
      ...Array.from({ length: 40 }, (_, i): [string, Json, { key: string }] => [
        'a bit',
        { ...params, requestState: flipped(i * 7) },
        other,
      ]),
      ...[1, 2, 10].map((cut): [string, Json, { key: string }] => [
        'a part',
        { ...params, requestState: requestState.slice(0, -cut) },
        other,
      ]),
    ];
    for (const [what, asked, who] of tries) {
      const reply = await attacked.modern('tools/call', { ...asked, inputResponses }, who);
      expect([what, isRefused(reply)]).toEqual([what, true]);
    }
    expect(await attacked.receivedBytes('vault')).toBe(before);
  });
});

test('only their own user can access the control socket, the key and the data directory', () => {
  const { dataDir } = attacked.place;
  const modeOf = (name: string) => statSync(path.join(dataDir, name)).mode & 0o777;
  expect(modeOf('.')).toBe(0o700);
  expect(modeOf('key')).toBe(0o600);
  const socket = ['control.sock', 'hostler.sock'].find((name) =>
    statSync(path.join(dataDir, name), { throwIfNoEntry: false }),
  );
  expect(socket && modeOf(socket)).toBe(0o600);
});

test.each([
  ...[
    '/mcp/..',
    '/mcp/../mcp',
    '/mcp/%2e%2e',
    '/mcp/..%2f..%2fetc%2fpasswd',
    '/mcp/./open',
    '/mcp//open',
    '/mcp/open/',
  ],
  ...[
    '/mcp/@',
    '/mcp/@../open',
    '/mcp/@%6dixed',
    '/mcp/op%65n',
    '/mcp\\open',
    '/mcp;/open',
    '/mcp/open;x',
    '/mcp/OPEN',
  ],
  ...['/mcp/__proto__', '/mcp/@__proto__', '/mcp/@constructor', '/mcp/@toString', '/mcp/open%00', '/mcp/open%0d%0aX:y'],
])('no other spelling of a path reaches a page: %s', async (place) => {
  expect((await attacked.modern('tools/list', {}, { ...operator(), path: place })).status).toBe(404);
});
