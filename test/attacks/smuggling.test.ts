/** Requests that two parsers could read differently: each is refused with one answer, and nothing after it is served. */
import { connect } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Attacked, META } from './attacked.js';

const attacked = new Attacked();
beforeAll(() =>
  attacked.up({ mcpServers: { a: attacked.stdioServer('a', 'modern'), b: attacked.stdioServer('b', 'legacy') } }),
);
afterAll(() => attacked.remove());

/** All received bytes until no more arrive. */
function answersTo(text: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(attacked.port, '127.0.0.1');
    let said = '';
    let timer = setTimeout(() => socket.destroy(), 2_000);
    socket.on('data', (chunk) => {
      said += chunk.toString('latin1');
      clearTimeout(timer);
      timer = setTimeout(() => socket.destroy(), 100);
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      clearTimeout(timer);
      resolve(said);
    });
    socket.write(text);
  });
}
const statuses = (text: string) => [...text.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status]) => Number(status));
const withKey = (...lines: string[]) =>
  [
    'Host: localhost',
    `Authorization: Bearer ${attacked.ready.key}`,
    'Content-Type: application/json',
    ...lines,
    '',
    '',
  ].join('\r\n');
const hidden = () => `GET /metrics HTTP/1.1\r\n${withKey()}`;

test.each<[string, () => string, number[]]>([
  ['a length and chunks', () => withKey('Content-Length: 4', 'Transfer-Encoding: chunked'), [400]],
  ['two lengths', () => withKey('Content-Length: 4', 'Content-Length: 0'), [400]],
  ['a list of lengths', () => withKey('Content-Length: 4, 4'), [400]],
  ['a length with a sign', () => withKey('Content-Length: +4'), [400]],
  ['a length with a space before its colon', () => withKey('Content-Length : 4'), [400]],
  ['two encodings', () => withKey('Transfer-Encoding: chunked', 'Transfer-Encoding: identity'), [400]],
  ['an almost valid encoding', () => withKey('Transfer-Encoding: xchunked'), [400]],
  ['chunked not as the last encoding', () => withKey('Transfer-Encoding: chunked, gzip'), [400]],
  ['a folded header', () => withKey('X: a', ' b', 'Content-Length: 4'), [400]],
])('%s: 400, and the bytes after it are not read as a request', async (_what, head, expected) => {
  expect(statuses(await answersTo(`POST /mcp HTTP/1.1\r\n${head()}0\r\n\r\n${hidden()}`))).toEqual(expected);
});

test.each<[string, () => string, number]>([
  [
    'an absolute address of another host in the request line',
    () => `GET http://evil.example/metrics HTTP/1.1\r\n${withKey()}`,
    404,
  ],
  ['two hosts', () => `GET /mcp HTTP/1.1\r\n${withKey('Host: evil.example')}`, 403],
  ['two keys', () => `GET /metrics HTTP/1.1\r\n${withKey('Authorization: Bearer x')}`, 401],
  ['no host', () => 'GET /mcp HTTP/1.0\r\n\r\n', 403],
  ['no host, at a public page', () => 'GET /healthz HTTP/1.0\r\n\r\n', 200],
  ['another protocol', () => 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400],
])('%s: %s', async (_what, text, status) => {
  expect(statuses(await answersTo(text()))).toEqual([status]);
});

test('pipelined requests are answered in their order, each with its own answer', async () => {
  const call = (id: number, server: string) => {
    const name = `${server}__echo`;
    const params = { name, arguments: { text: `own ${id}` }, _meta: META };
    const body = JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params });
    const lines = ['MCP-Protocol-Version: 2026-07-28', 'Mcp-Method: tools/call', `Mcp-Name: ${name}`];
    return `POST /mcp HTTP/1.1\r\n${withKey(...lines, `Content-Length: ${body.length}`)}${body}`;
  };
  await answersTo(call(0, 'a') + call(0, 'b'));
  const rows = Array.from({ length: 50 }, (_, i) => call(i, i % 2 === 0 ? 'a' : 'b'));
  const said = await answersTo(rows.join(''));
  expect([...said.matchAll(/"id":(\d+).*?own (\d+)/gs)].map(([, id, own]) => [id, own])).toEqual(
    rows.map((_row, i) => [String(i), String(i)]),
  );
});

test.each([
  ['a name twice', '"name":"a__echo","name":"b__echo"'],
  ['a name twice, once in escapes', '"name":"a__echo","\\u006eame":"b__echo"'],
])('%s: refused, and no server receives it', async (_what, names) => {
  const lengths = () => Promise.all(['a', 'b'].map((name) => attacked.receivedBytes(name)));
  const before = await lengths();
  const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{${names},"arguments":{},"_meta":${JSON.stringify(META)}}}`;
  const headers = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'a__echo' };
  expect((await attacked.send({ key: attacked.ready.key, headers, body })).status).toBe(400);
  expect(await lengths()).toEqual(before);
});
