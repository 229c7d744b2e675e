import { describe, expect, test } from 'vitest';
import { legacyResult, modernResult } from '../../../test/fakes/bridge-exchange.js';
import { inputRequestsMax, inputRequiredBytesMax, readInputRequired, withState } from './input-required.js';

const read = (text: string, method = 'tools/call') => readInputRequired('files', method, modernResult(text));
const form = '{"method":"elicitation/create","params":{"message":"who?"}}';

describe('a result', () => {
  test.each([
    ['an answer', '{"resultType":"complete","content":[]}'],
    ['a result with the word in a text', '{"content":[{"type":"text","text":"input_required"}]}'],
    ['a result with the word in a nested member', '{"a":{"resultType":"input_required","requestState":"x"}}'],
    ['a result with escapes', '{"resultType":"complete","content":[{"text":"\\u0041"}]}'],
  ])('that requests no input: %s', (_, text) => {
    expect(read(text)).toBeUndefined();
  });

  test('of a legacy server requests no input, whatever its text', () => {
    const relayed = legacyResult('{"resultType":"input_required","requestState":"x"}');
    expect(readInputRequired('files', 'tools/call', relayed)).toBeUndefined();
  });

  test('that requests input is read in the order of its requests', () => {
    const text = `{"inputRequests":{"b":${form},"a":{"method":"roots/list"},"c":{"method":"elicitation/create","params":{"mode":"url"}},"d":{"method":"sampling/createMessage","params":{"tools":[]}}},"requestState":"s\\u0041","resultType":"input_required"}`;
    const found = read(text);
    expect(found?.requests.map(({ key, method, need }) => [key, method, need])).toEqual([
      ['b', 'elicitation/create', 'form'],
      ['a', 'roots/list', 'roots'],
      ['c', 'elicitation/create', 'url'],
      ['d', 'sampling/createMessage', 'samplingTools'],
    ]);
    const { start, end } = found?.state ?? { start: 0, end: 0 };
    expect(text.slice(start, end)).toBe('"s\\u0041"');
  });

  test('that writes `input_required` or `resultType` with escapes is recognised too', () => {
    expect(read('{"resultType":"input\\u005frequired","requestState":"x"}')).toMatchObject({ requests: [] });
    expect(read('{"result\\u0054ype":"input_required","requestState":"x"}')).toMatchObject({ requests: [] });
  });

  const many = Array.from({ length: inputRequestsMax + 1 }, (_, i) => `"k${i}":${form}`).join(',');
  test.each([
    ['its type twice', '{"resultType":"complete","resultType":"input_required","requestState":"x"}', 'input_ambiguous'],
    ['its state twice', '{"resultType":"input_required","requestState":"x","requestState":"y"}', 'input_ambiguous'],
    ['nothing in it', '{"resultType":"input_required"}', 'input_empty'],
    ['a state that is no string', '{"resultType":"input_required","requestState":7}', 'input_malformed'],
    ['requests that are no object', '{"resultType":"input_required","inputRequests":[]}', 'input_malformed'],
    [
      'a key twice',
      `{"resultType":"input_required","inputRequests":{"a":${form},"\\u0061":${form}}}`,
      'input_malformed',
    ],
    [
      'a method that no client supports',
      '{"resultType":"input_required","inputRequests":{"a":{"method":"x/y","params":{}}}}',
      'input_malformed',
    ],
    [
      'a form without params',
      '{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create"}}}',
      'input_malformed',
    ],
    ['too many requests', `{"resultType":"input_required","inputRequests":{${many}}}`, 'input_malformed'],
    [
      'too many bytes',
      `{"resultType":"input_required","requestState":"${'x'.repeat(inputRequiredBytesMax)}"}`,
      'input_too_large',
    ],
  ])('with %s is refused', (_, text, reason) => {
    expect(() => read(text)).toThrow(
      expect.objectContaining({ code: 'protocol_error', details: expect.objectContaining({ reason }) }),
    );
  });

  test('of a method that cannot be answered with input_required is refused', () => {
    expect(() => read('{"resultType":"input_required","requestState":"x"}', 'tools/list')).toThrow(
      /cannot be answered with input_required/,
    );
  });

  test('gets another state and is otherwise unchanged', () => {
    const text = '{ "vendor": 12345678901234567890, "resultType":"input_required","requestState" : "old" , "z":1}';
    const { state } = read(text) ?? {};
    expect(withState(Buffer.from(text), state as never, 'new').toString()).toBe(text.replace('"old"', '"new"'));
  });
});
