/**
 * One document over real HTTP: what is fetched, and what is not.
 */
import { afterEach, expect, test } from 'vitest';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { fetchDocument } from '../../src/transports/http/fetch-document.js';
import { type Answer, startServer, type TestServer } from '../fakes/http-server.js';
import { failureOf } from '../fakes/policy-call.js';

const servers: TestServer[] = [];
const clock = new FakeClock();
const deps = { clock, random: Math.random };

async function serve(answer: Answer): Promise<TestServer> {
  const server = await startServer(answer);
  servers.push(server);
  return server;
}
const get = (url: string, bytesMax = 1_000) =>
  fetchDocument({ what: 'the card', url, deadlineAtMs: clock.nowMs() + 10_000, bytesMax }, deps);

afterEach(async () => {
  for (const server of servers.splice(0)) await server.close();
});

test('the body is returned unchanged, and requested without compression', async () => {
  const server = await serve((_received, response) => response.writeHead(200).end('{"name":"x"}'));
  expect((await get(`${server.url}?a=1#part`)).toString()).toBe('{"name":"x"}');
  expect(server.received).toMatchObject([
    { method: 'GET', path: '/mcp?a=1', headers: { accept: 'application/json', 'accept-encoding': 'identity' } },
  ]);
  expect(clock.pendingTimers).toBe(0);
});

test.each([204, 404, 500])('a status of %s is a refusal', async (status) => {
  const server = await serve((_received, response) => response.writeHead(status).end());
  const error = await failureOf(get(server.url));
  expect([error.details.httpStatus, error.message]).toEqual([
    status,
    `the card: the response has status ${status} instead of 200`,
  ]);
  expect(error.hint).toContain('check the URL');
});

test('a redirect is followed on the same origin, and to no other', async () => {
  const other = await serve((_received, response) => response.writeHead(200).end('theirs'));
  const server = await serve(({ path }, response) => {
    if (path === '/here') response.writeHead(200).end('ours');
    else response.writeHead(302, { location: path === '/mcp' ? '/here' : other.url }).end();
  });
  expect((await get(server.url)).toString()).toBe('ours');
  expect((await failureOf(get(new URL('/away', server.url).href))).details.reason).toBe('redirect_origin');
  expect(other.received).toEqual([]);
});

test('reading stops at the limit', async () => {
  const server = await serve((_received, response) => {
    response.writeHead(200);
    const more = () => response.write('x'.repeat(100), (error) => error ?? setImmediate(more));
    more();
  });
  const error = await failureOf(get(server.url));
  expect([error.code, error.details.limit, error.hint]).toEqual([
    ...['result_too_large', 1_000, 'make it smaller, or check the URL'],
  ]);
  await server.until(() => server.cut === 1);
});

test('the request to a hanging server ends at the deadline', async () => {
  const server = await serve((_received, response) => response.writeHead(200).write('{'));
  const late = failureOf(get(server.url));
  await server.until(() => server.received.length === 1);
  clock.advance(10_000);
  expect((await late).code).toBe('timeout');
  await server.until(() => server.cut === 1);
});

test('no server at the address, and no URL', async () => {
  const refused = await failureOf(get('http://127.0.0.1:9/'));
  expect([refused.details.reason, refused.message]).toEqual([
    ...['ECONNREFUSED', "server '127.0.0.1:9': no connection could be opened (ECONNREFUSED)"],
  ]);
  expect((await failureOf(get('http://user:secret@127.0.0.1/'))).code).toBe('invalid_spec');
  expect(clock.pendingTimers).toBe(0);
});
