import { describe, expect, test } from 'vitest';
import { ERAS } from '../../session/eras/eras.js';
import { readReplyBody, resultBody } from './reply-body.js';

describe('the body of a result', () => {
  test.each(ERAS.map(({ name }) => name))('keeps its bytes and the era %s', (era) => {
    const bytes = Buffer.from('{"content":[],"n":1.0}');
    expect(readReplyBody(resultBody(bytes, era))).toEqual({ kind: 'result', bytes, era });
  });

  test.each([
    ['an era that this version does not know', '{"era":"future","result":{}}'],
    ['an era that is no string', '{"era":1,"result":{}}'],
    ['no era', '{"result":{}}'],
  ])('with %s is an error, because the result could not be translated for its caller', (_, text) => {
    const error = { code: 'protocol_error', details: { field: 'era', execution: 'uncertain' } };
    expect(() => readReplyBody(Buffer.from(text))).toThrow(expect.objectContaining(error));
  });
});
