import { expect, test } from 'vitest';
import { modernEra } from '../../gateway/eras/modern/era.js';
import { HostError } from '../../kernel/errors.js';
import { RequestTable } from './request-table.js';

const meta = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28' };
const lineOf = (message: object) => Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message }));
const client = (table: RequestTable, message: object) => {
  const line = lineOf(message);
  return table.fromClient(line, 0, line.length);
};
const host = (table: RequestTable, message: object | string) => {
  const line = typeof message === 'string' ? Buffer.from(message) : lineOf(message);
  return table.fromHost(line, 0, line.length);
};
const text = (table: RequestTable, line: string | Buffer) => {
  const bytes = Buffer.from(line);
  return table.fromClient(bytes, 0, bytes.length);
};
/** The only revision with batches. */
const withBatches = () => {
  const table = new RequestTable();
  client(table, request(0, 'initialize', { protocolVersion: '2025-03-26' }));
  host(table, { id: 0, result: {} });
  return table;
};
const request = (id: unknown, method: string, params: object = {}) => ({ id, method, params });
const parsed = (lines: readonly (string | Buffer)[]) => lines.map((line) => JSON.parse(String(line)));

test('R2 a call that was handed over is answered as uncertain and never sent again', () => {
  const table = new RequestTable();
  client(table, request(1, 'tools/call', { name: 'a__b' }));
  client(table, request('x"y', 'tools/call', { name: 'a__c', _meta: meta }));
  client(table, request(3, 'vendor/write'));
  const { answers, again } = table.settle();
  expect(again).toEqual([]);
  const [legacy, modern, other] = parsed(answers);
  const error = { code: 'outcome_uncertain', retryable: false };
  expect(legacy).toMatchObject({
    id: 1,
    result: { isError: true, _meta: { 'hostler/error': { ...error, tool: 'a__b' } } },
  });
  expect(modern).toMatchObject({ id: 'x"y', result: { resultType: 'complete', _meta: { 'hostler/error': error } } });
  expect(other).toMatchObject({ id: 3, error: { code: -31019, data: error } });
  // The shape that the gateway gives a failed call of this era.
  expect(Object.keys(modern.result)).toEqual(
    Object.keys(JSON.parse(modernEra.toolError('t', '"f":1', '{}') as string)),
  );
  expect(table.settle()).toEqual({ answers: [], again: [] });
});

test('R2 lists, reads and pings are sent again unchanged; answered or cancelled requests are not', () => {
  const table = new RequestTable();
  const methods = [
    'tools/list',
    'resources/read',
    'prompts/get',
    'ping',
    'completion/complete',
    'subscriptions/listen',
  ];
  for (const [at, method] of methods.entries()) client(table, request(at, method));
  client(table, request(10, 'tools/list'));
  client(table, request(11, 'tools/call', { name: 'x' }));
  client(table, request(12, 'tools/call', { name: 'x' }));
  expect(host(table, { id: 10, result: {} })).toBe('forward');
  expect(host(table, { id: 11, result: {} })).toBe('forward');
  client(table, { method: 'notifications/cancelled', params: { requestId: 12 } });
  expect(table.size).toBe(methods.length);
  const { answers, again } = table.settle();
  expect([answers, parsed(again).map(({ method }) => method)]).toEqual([[], methods]);
});

test('R2 when the client sends no more, nothing is sent again: a listen stream ends, every other request is answered', () => {
  const table = new RequestTable();
  client(table, request(1, 'subscriptions/listen', { notifications: { toolsListChanged: true } }));
  client(table, request(2, 'resources/read', { uri: 'a:b' }));
  client(table, request(3, 'tools/call', { name: 'a__b' }));
  const { answers, again } = table.settle(true);
  expect(again).toEqual([]);
  expect(parsed(answers)).toMatchObject([
    { id: 2, error: { data: { code: 'cancelled', reason: 'host_lost' } } },
    {
      id: 3,
      result: { _meta: { 'hostler/error': { code: 'outcome_uncertain', reason: 'host_lost', tool: 'a__b' } } },
    },
  ]);
  for (const answer of answers) expect(answer).toContain('the connection to Hostler ended');
  expect(table.size).toBe(0);
});

test('R2 a listen stream that a new host opened again reports once that each granted list changed', () => {
  const table = new RequestTable();
  const listen = request('s"1', 'subscriptions/listen', { notifications: { toolsListChanged: true } });
  const acknowledged = (notifications: object, id: unknown = 's"1') => ({
    method: 'notifications/subscriptions/acknowledged',
    params: { notifications, _meta: { 'io.modelcontextprotocol/subscriptionId': id } },
  });
  const granted = { toolsListChanged: true, resourcesListChanged: true, resourceSubscriptions: ['a:b'] };
  client(table, listen);
  expect(host(table, acknowledged(granted))).toBe('forward');
  for (const line of table.settle().again) text(table, line);
  expect(host(table, acknowledged(granted, 'other'))).toBe('forward');
  const { after } = host(table, acknowledged(granted)) as { after: string[] };
  const params = { _meta: { 'io.modelcontextprotocol/subscriptionId': 's"1' } };
  expect(parsed(after)).toEqual([
    { jsonrpc: '2.0', method: 'notifications/tools/list_changed', params },
    { jsonrpc: '2.0', method: 'notifications/resources/list_changed', params },
  ]);
  expect(host(table, acknowledged(granted))).toBe('forward');
  expect(table.settle().again.length).toBe(1);
});

test('R2 the session of a legacy client is opened again at a new host, and the client gets no second answer to its requests', () => {
  const table = new RequestTable();
  expect(table.replay()).toEqual([]);
  client(table, request(1, 'initialize', { protocolVersion: '2025-11-25' }));
  // Not yet answered, so it is sent again as a request of its client.
  expect([table.replay(), table.settle().again.length]).toEqual([[], 1]);
  client(table, request(1, 'initialize', { protocolVersion: '2025-11-25' }));
  host(table, { id: 1, result: {} });
  client(table, { method: 'notifications/initialized' });
  client(table, request(2, 'logging/setLevel', { level: 'debug' }));
  for (const [at, uri] of ['u:1', 'u:2', 'u:3'].entries())
    client(table, request(3 + at, 'resources/subscribe', { uri }));
  client(table, request(6, 'resources/unsubscribe', { uri: 'u:2' }));
  client(table, request(7, 'resources/subscribe', { uri: 'u:refused' }));
  client(table, request(8, 'tools/list'));
  for (const id of [2, 3, 4, 5, 6, 8]) host(table, { id, result: {} });
  host(table, { id: 7, error: { code: 1, message: 'no' } });
  const replayed = parsed(table.replay());
  expect(replayed.map(({ method, params }) => [method, params?.uri ?? params?.level])).toEqual([
    ['initialize', undefined],
    ['notifications/initialized', undefined],
    ['logging/setLevel', 'debug'],
    ['resources/subscribe', 'u:1'],
    ['resources/subscribe', 'u:3'],
  ]);
  for (const { id } of replayed) if (id !== undefined) expect(host(table, { id, result: {} })).toBe('swallow');
  expect(parsed(table.changes())).toEqual([{ jsonrpc: '2.0', method: 'notifications/tools/list_changed' }]);
});

test('R2 questions of a lost host are withdrawn, and late answers to them reach no other host', () => {
  const table = new RequestTable();
  host(table, { id: 71, method: 'elicitation/create', params: {} });
  host(table, { id: 72, method: 'sampling/createMessage', params: {} });
  expect(client(table, { id: 71, result: {} })).toBe('forward');
  expect(parsed(table.settle().answers)).toEqual([
    { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 72 } },
  ]);
  expect(client(table, { id: 72, result: {} })).toBe('drop');
});

test('questions that the host withdraws are forgotten; beyond the bound the oldest is forgotten', () => {
  const table = new RequestTable();
  const ask = (id: number) => host(table, { id, method: 'elicitation/create', params: {} });
  for (let id = 1; id <= 1_000; id++) {
    ask(id);
    expect(host(table, { method: 'notifications/cancelled', params: { requestId: id } })).toBe('forward');
  }
  expect(table.settle().answers).toEqual([]);
  for (let id = 1; id <= 1_001; id++) ask(id);
  expect([1, 2, 1_001].map((id) => client(table, { id, result: {} }))).toEqual(['drop', 'forward', 'forward']);
});

test('after a loss the open requests of a batch are answered one by one, and a line for the relay is not forwarded', () => {
  const table = withBatches();
  const batch = [request(1, 'tools/call', { name: 'x' }), request(2, 'tools/list'), request(3, 'ping')];
  expect(text(table, `[${batch.map(lineOf).join()}]`)).toBe('forward');
  expect(host(table, '[{"jsonrpc":"2.0","id":3,"result":{}}]')).toBe('forward');
  expect(parsed(table.settle().answers).map(({ id }) => id)).toEqual([1, 2]);
  expect(host(table, '{"hostler":"stopping","reason":"down"}')).toBe('own');
});

test('a line that is not a message is forwarded, and the host answers it', () => {
  const table = new RequestTable();
  for (const text of ['{', 'x', '[', '{"jsonrpc":"1.0","id":1}']) {
    const line = Buffer.from(text);
    expect(table.fromClient(line, 0, line.length)).toBe('forward');
  }
  expect(table.size).toBe(0);
  const error = new HostError('connect_failed', 'no host', { execution: 'not_executed' });
  expect(table.refuse(lineOf({ method: 'notifications/initialized' }), error)).toBeUndefined();
  expect(table.refuse(lineOf(request(5, 'tools/list')), error)).toContain('"retryable":true');
});

test('a request is not recorded if the host answers it with an error that has no id', () => {
  const table = new RequestTable();
  expect(client(table, request('x'.repeat(1_025), 'tools/list'))).toBe('forward');
  expect(client(table, request(1, 'tools/list', { values: Array(100_001).fill(0) }))).toBe('forward');
  const notUtf8 = Buffer.from('{"jsonrpc":"2.0","id":2,"method":"ping","params":{"a":"\u00ff"}}', 'latin1');
  expect(text(table, notUtf8)).toBe('forward');
  // This revision has no batches.
  expect(text(table, `[${lineOf(request(3, 'ping'))}]`)).toBe('forward');
  expect(table.size).toBe(0);
});

test('R2 a line with a byte order mark or blanks in front is recorded like any other', () => {
  const table = withBatches();
  text(table, `\ufeff${lineOf(request(1, 'tools/call', { name: 'x' }))}`);
  text(table, ` \ufeff${lineOf(request(2, 'ping'))}`);
  text(table, `\ufeff [${lineOf(request(3, 'ping'))}]`);
  text(table, `\t${lineOf(request(4, 'ping'))}`);
  const { answers, again } = table.settle();
  expect(parsed(answers).map(({ id }) => id)).toEqual([1, 3]);
  expect(again.map(String)).toEqual([`\t${lineOf(request(4, 'ping'))}`]);
});

test('R2 two requests with the same id are both answered, whichever the host answers first, and neither is sent again', () => {
  const table = new RequestTable();
  client(table, request(1, 'tools/list'));
  client(table, request(1, 'tools/call', { name: 'x' }));
  expect(table.settle()).toMatchObject({ answers: [expect.stringContaining('"id":1'), expect.any(String)], again: [] });
  client(table, request(1, 'tools/call', { name: 'x' }));
  client(table, request(1, 'tools/call', { name: 'x' }));
  // The host refuses the second one at once.
  host(table, { id: 1, error: { code: -32600, message: 'a request with this id is in progress' } });
  expect(parsed(table.settle().answers)).toMatchObject([{ id: 1, result: { isError: true } }]);
  client(table, request(2, 'tools/call', { name: 'x' }));
  client(table, request(2, 'ping'));
  client(table, { method: 'notifications/cancelled', params: { requestId: 2 } });
  host(table, { id: 2, error: { code: -32600, message: 'a request with this id is in progress' } });
  expect([table.size, table.settle()]).toEqual([0, { answers: [], again: [] }]);
});

test('R2 a client with too many open requests is refused by the relay, until one of them is answered', () => {
  const table = withBatches();
  for (let id = 1; id <= 5_000; id++) expect(client(table, request(id, 'tools/call', { name: 'x' }))).toBe('forward');
  const refused = client(table, request('more', 'tools/call', { name: 'x' })) as { answer: string };
  expect(JSON.parse(refused.answer)).toMatchObject({
    id: 'more',
    result: { isError: true, _meta: { 'hostler/error': { code: 'overloaded', retryable: true } } },
  });
  const batch = text(table, `[${lineOf(request('a', 'ping'))},${lineOf(request('b', 'ping'))}]`) as { answer: string };
  expect(JSON.parse(batch.answer)).toMatchObject([
    { id: 'a', error: {} },
    { id: 'b', error: {} },
  ]);
  // The cancellation, which makes room, is forwarded.
  expect(client(table, { method: 'notifications/cancelled', params: { requestId: 1 } })).toBe('forward');
  expect([table.size, client(table, request('more', 'tools/call', { name: 'x' }))]).toEqual([4_999, 'forward']);
});

test('R2 requests that repeat an id count like any other', () => {
  const table = new RequestTable();
  for (let n = 1; n <= 5_000; n++) expect(client(table, request(1, 'ping'))).toBe('forward');
  expect(client(table, request(1, 'ping'))).toMatchObject({ answer: expect.stringContaining('"overloaded"') });
  host(table, { id: 1, error: { code: -32600, message: 'a request with this id is in progress' } });
  expect([table.size, client(table, request(2, 'ping'))]).toEqual([4_999, 'forward']);
  expect([table.settle().answers.length, table.size]).toEqual([4_999, 0]);
});

test('R2 requests of a batch that no host gets are answered together', () => {
  const table = new RequestTable();
  const error = new HostError('connect_failed', 'no host', { execution: 'not_executed' });
  const refuse = (line: string) => table.refuse(Buffer.from(line), error);
  const batch = [
    request(1, 'ping'),
    { method: 'notifications/initialized' },
    request('2', 'tools/call', { name: 'x' }),
  ];
  const answer = JSON.parse(refuse(`\ufeff[${batch.map(lineOf).join()}]`) as string);
  expect(answer).toMatchObject([
    { id: 1, error: { data: { code: 'connect_failed' } } },
    { id: '2', result: { isError: true } },
  ]);
  expect([refuse(`[${lineOf({ id: 9, result: {} })}]`), refuse('[]'), refuse('[')]).toEqual([
    ...[undefined, undefined, undefined],
  ]);
});

test('R2 a batch of answers for an earlier host is not sent to a later host', () => {
  const table = withBatches();
  host(table, { id: 71, method: 'elicitation/create', params: {} });
  const answer = lineOf({ id: 71, result: {} });
  expect(text(table, `[${answer}]`)).toBe('forward');
  expect(text(table, `[${answer}]`)).toBe('drop');
  expect(text(table, `[${answer},${lineOf(request(1, 'ping'))}]`)).toBe('forward');
});
