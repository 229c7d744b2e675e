import { expect, test } from 'vitest';
import { checkPost, isTooMuchToDrain } from './reply.js';

const headersOf = (flat: readonly string[]) => {
  const headers: Record<string, string> = {};
  for (let i = 0; i < flat.length; i += 2) {
    const [name, value] = [flat[i] as string, flat[i + 1] as string];
    headers[name] = name in headers ? `${headers[name]}, ${value}` : value;
  }
  return headers;
};

const json = ['content-type', 'application/json'];

test.each([
  [['content-type', 'application/json'], undefined],
  [['content-type', 'APPLICATION/JSON ; charset=utf-8'], undefined],
  [['content-type', 'application/json, text/plain'], 415],
  [['content-type', 'application/jsonx'], 415],
  [['content-type', 'text/plain; application/json'], 415],
  [[], 415],
  [[...json, 'accept', 'application/json,text/event-stream'], undefined],
  [[...json, 'accept', '*/*'], undefined],
  [[...json, 'accept', 'application/json', 'accept', 'text/event-stream'], undefined],
  [[...json, 'accept', 'xapplication/json, text/event-stream'], 406],
  [[...json, 'accept', ''], 406],
  [[...json, 'content-length', '10'], undefined],
  [[...json, 'content-length', '11'], 413],
  [[...json, 'content-length', 'x'], 413],
])('a POST with the headers %j: refusal %s', (headers, status) => {
  expect(checkPost(headersOf(headers), 10)?.status).toBe(status);
});

test.each([
  [[], false],
  [['content-length', '5000000'], false],
  [['content-length', '50000000'], true],
  [['transfer-encoding', 'chunked'], true],
])('the body announced by %j is too much to drain: %s', (headers, isTooMuch) => {
  expect(isTooMuchToDrain(headersOf(headers))).toBe(isTooMuch);
});
