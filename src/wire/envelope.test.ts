import { describe, expect, test } from 'vitest';
import { Envelope, scanEnvelope } from './envelope.js';
import { MAY_HOLD_ERROR, MAY_HOLD_TTL } from './json-scan.js';

function scan(text: string | Buffer) {
  const bytes = Buffer.from(text as string);
  const envelope = new Envelope();
  const fault = scanEnvelope(bytes, 0, bytes.length, envelope);
  return fault === undefined
    ? {
        kind: envelope.kind,
        id: envelope.idText(),
        number: envelope.numericId(),
        method: envelope.method(),
        payload: envelope.payload()?.toString(),
      }
    : fault;
}

const deep = (levels: number) => '['.repeat(levels) + ']'.repeat(levels);

describe('the envelope of each kind of message', () => {
  test('a request, in any order of keys', () => {
    const expected = { kind: 'request', id: '7', number: 7, method: 'tools/call', payload: '{"name":"x"}' };
    expect(scan('{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}')).toEqual(expected);
    expect(scan('{"params":{"name":"x"},"method":"tools/call","id":7,"jsonrpc":"2.0"}')).toEqual(expected);
  });

  test('a notification has no id, and may have no params', () => {
    expect(scan('{"jsonrpc":"2.0","method":"a"}')).toMatchObject({
      kind: 'notification',
      id: undefined,
      payload: undefined,
    });
  });

  test('a result and an error, also with a null result', () => {
    expect(scan('{"result":null,"id":1,"jsonrpc":"2.0"}')).toMatchObject({ kind: 'result', payload: 'null' });
    expect(scan('{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}}')).toMatchObject({ kind: 'error' });
  });

  test('an error without a usable id is still an error, and answers no request', () => {
    expect(scan('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}')).toMatchObject({
      kind: 'error',
      id: undefined,
      number: Number.NaN,
    });
  });

  test('the payload has exactly the received bytes, including 64-bit integers and white space', () => {
    const payload = '{ "n": 18446744073709551615, "m":1.0, "x":1e400,"é":"\\u00e9" }';
    expect(scan(`{"jsonrpc":"2.0","id":1,"result":${payload}}`)).toMatchObject({ payload });
  });

  test.each([
    ['0', 0],
    ['7.0', 7],
    ['7e0', 7],
    ['-1', -1],
    ['9007199254740993', 9007199254740992],
    ['"7"', Number.NaN],
    ['""', Number.NaN],
  ])('id %s reads as the number %d', (id, number) => {
    expect(scan(`{"jsonrpc":"2.0","id":${id},"result":{}}`)).toMatchObject({ id, number });
  });

  test('an escaped method is decoded', () => {
    expect(scan('{"jsonrpc":"2.0","method":"p\\u0069ng","id":1}')).toMatchObject({ method: 'ping' });
  });
});

describe('F2 a message that two parsers could read differently is refused as ambiguous', () => {
  test.each([
    '{"jsonrpc":"2.0","id":1,"id":2,"result":{}}',
    '{"jsonrpc":"2.0","id":1,"result":{},"result":{}}',
    '{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
    '{"jsonrpc":"2.0","id":1,"method":"a","result":{}}',
    '{"jsonrpc":"2.0","id":1,"params":{},"result":{}}',
    '{"jsonrpc":"2.0","method":"a","Method":"b"}',
    '{"jsonrpc":"2.0","METHOD":"b","id":1,"result":{}}',
    '{"jsonrpc":"2.0","ID":1,"id":1,"result":{}}',
    '{"jsonrpc":"2.0","\\u0069d":1,"result":{}}',
    '{"jsonrpc":"2.0","id":1,"re\u017fult":{},"result":{}}',
    '{"jsonrpc":"2.0","id":1,"result\\u0000":{},"result":{}}',
    '{"JSONRPC":"2.0","jsonrpc":"2.0","id":1,"result":{}}',
  ])('%s', (text) => {
    expect(scan(text)).toBe('ambiguous');
  });
});

describe('texts that are no message', () => {
  test.each(
    [
      ['not_json', ''],
      ['not_json', 'server started'],
      ['not_json', '{"jsonrpc":"2.0","id":1,"result":{}'],
      ['not_json', '{"jsonrpc":"2.0","id":1,"result":{}} x'],
      ['not_json', '"text"'],
      ['not_rpc', '{}'],
      ['not_rpc', '{"id":1,"result":{}}'],
      ['not_rpc', '{"jsonrpc":"1.0","id":1,"result":{}}'],
      ['not_rpc', '{"jsonrpc":"2.0","id":1}'],
      ['not_rpc', '{"jsonrpc":"2.0","id":true,"result":{}}'],
      ['not_rpc', '{"jsonrpc":"2.0","id":{},"result":{}}'],
      ['not_rpc', '{"jsonrpc":"2.0","id":null,"result":{}}'],
      ['not_rpc', '{"jsonrpc":"2.0","id":null,"method":"a"}'],
      ['not_rpc', '{"jsonrpc":"2.0","id":1,"method":5}'],
      ['too_deep', `{"jsonrpc":"2.0","id":1,"result":${deep(128)}}`],
      ['too_deep', `{"jsonrpc":"2.0","id":1,"result":${deep(100_000)}}`],
    ].map(([fault, text]) => [fault, text?.slice(0, 60), text] as [string, string, string]),
  )('%s: %s', (fault, _start, text) => {
    expect(scan(text)).toBe(fault);
  });

  test('a vendor key at the top level is accepted, also __proto__', () => {
    expect(scan('{"jsonrpc":"2.0","id":1,"result":{},"__proto__":{"id":2},"vendor":1}')).toMatchObject({ id: '1' });
  });
});

test.each([
  ['{"content":[]}', 0],
  ['{"content":[],"isError":true}', MAY_HOLD_ERROR],
  ['{"ttlMs":1,"content":[]}', MAY_HOLD_TTL],
  ['{"content":[{"ttlMs" : 1,"isError":false}]}', MAY_HOLD_ERROR + MAY_HOLD_TTL],
  ['{"isErrors":1,"ttl":1,"text":"\\"isError\\" \\"ttlMs\\""}', 0],
] as const)('the scan reports which of the keys that policy reads may be in %s', (result, mayHold) => {
  const text = Buffer.from(`{"jsonrpc":"2.0","id":1,"result":${result}}`);
  const envelope = new Envelope();
  // Values of an earlier message are forgotten.
  scanEnvelope(Buffer.from('{"jsonrpc":"2.0","id":1,"result":{"isError":1,"ttlMs":1}}'), 0, 57, envelope);
  expect(scanEnvelope(text, 0, text.length, envelope)).toBeUndefined();
  expect(envelope.mayHold).toBe(mayHold);
});

const withValues = (count: number) =>
  Buffer.from(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"l":[${'0,'.repeat(count).slice(0, -1)}]}}`);

test('X18 a scan stops when the message has more values than the bound of this scan; the next scan has no bound', () => {
  const envelope = new Envelope();
  const bounded = (bytes: Buffer) => scanEnvelope(bytes, 0, bytes.length, envelope, 100);
  expect([bounded(withValues(90)), bounded(withValues(101)), bounded(withValues(1_000_000))]).toEqual([
    undefined,
    'too_many',
    'too_many',
  ]);
  const large = withValues(1_000);
  expect(scanEnvelope(large, 0, large.length, envelope)).toBeUndefined();
});

test('X18 values are counted over all members together', () => {
  const envelope = new Envelope();
  const parts = Array.from({ length: 10 }, (_, i) => `"x${i}":[${'0,'.repeat(50).slice(0, -1)}]`);
  const bytes = Buffer.from(`{"jsonrpc":"2.0","id":1,"method":"m",${parts.join()}}`);
  expect(scanEnvelope(bytes, 0, bytes.length, envelope, 100)).toBe('too_many');
});

test('X18 values of params are counted over all their members together', () => {
  const envelope = new Envelope();
  const lists = (count: number) =>
    Array.from({ length: 5 }, (_, i) => `"x${i}":[${'0,'.repeat(count).slice(0, -1)}]`).join();
  const bounded = (count: number) => {
    const bytes = Buffer.from(`{"jsonrpc":"2.0","id":1,"method":"m","params":{${lists(count)}}}`);
    return scanEnvelope(bytes, 0, bytes.length, envelope, 100);
  };
  expect([bounded(17), bounded(50), bounded(1_000)]).toEqual([undefined, 'too_many', 'too_many']);
});
