import { describe, expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import { errorReply, joined, manifestReply, readReply, resultReply } from './messages.js';

describe('a reply', () => {
  test('is read as it was written', () => {
    const bytes = Buffer.from('{"content":[],"n":90071992547409931}');
    expect(readReply(joined(...resultReply(bytes, 'modern')))).toEqual({ kind: 'result', bytes, era: 'modern' });
    const manifest = { revision: 'r', tools: [{ server: 's', name: 't', raw: Buffer.from('{"name":"t"}') }] };
    expect(readReply(manifestReply(manifest))).toEqual({ kind: 'manifest', manifest });
    const error = new HostError('circuit_open', 'unreachable', { retryAfterMs: 5, hint: 'wait' });
    const reply = readReply(joined(...errorReply(error)));
    expect(reply.kind === 'error' && reply.error.toJSON()).toEqual(error.toJSON());
  });

  test.each([
    ['no JSON', '{"v":1,'],
    ['of another version', '{"v":2,"result":{}}'],
    ['of no version', '{"result":{}}'],
    ['empty', '{"v":1}'],
    ['two things at once', '{"v":1,"result":{},"error":{}}'],
    ['no object', '{"v":1,"result":[]}'],
    ['a manifest without a revision', '{"v":1,"manifest":{"tools":[]}}'],
    ['a manifest with a nameless tool', '{"v":1,"manifest":{"revision":"r","tools":[{"server":"s","tool":{}}]}}'],
  ])('that is %s says nothing about whether anything ran', (_what, body) => {
    let error: unknown;
    try {
      readReply(Buffer.from(body));
    } catch (caught) {
      error = caught;
    }
    expect(error).toMatchObject({ code: 'protocol_error', details: { execution: 'uncertain' }, retryable: false });
  });
});
