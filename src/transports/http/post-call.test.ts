import { expect, test } from 'vitest';
import { newCounters } from '../../wire/channel.js';
import { requestFrame } from '../../wire/frame.js';
import { MessageDecoder } from '../../wire/message-decoder.js';
import { type CallHost, PostCall } from './post-call.js';

function begin(headers: Record<string, string>, status = 200, sessionId?: string, ended = (_how: string) => {}) {
  const decoder = new MessageDecoder(newCounters());
  const answers: string[] = [];
  const host: CallHost = {
    server: 'fake',
    decode: (bytes, deliver) => decoder.decode(bytes, 0, bytes.length, deliver),
    message: (envelope) => answers.push(envelope.payload()?.toString() ?? ''),
    active() {},
    junk() {},
    opened: () => undefined,
    answered: () => ended('answered'),
    failed: () => ended('failed'),
    refused: () => ended('refused'),
    broke() {},
    released() {},
  };
  const call = new PostCall(host, requestFrame(1, 'tools/call', undefined, undefined), 'modern');
  call.sessionId = sessionId;
  call.head(status, headers);
  return { call, answers };
}

const body = Buffer.from(`{"jsonrpc":"2.0","id":1,"result":"${'x'.repeat(10_000)}"}`);

test('a body that arrives byte by byte is copied together; no piece of it is kept', () => {
  const { call, answers } = begin({ 'content-type': 'application/json' });
  call.data(body.subarray(0, 1));
  // One buffer for all pieces: whoever kept it would read its last content as often as it was given.
  const piece = Buffer.alloc(1);
  for (let at = 1; at < body.length; at++) {
    body.copy(piece, 0, at, at + 1);
    call.data(piece);
  }
  call.end();
  expect(answers).toEqual([`"${'x'.repeat(10_000)}"`]);
});

test.each([1, 2, 3])('a body in %i pieces arrives whole, also with empty ones between', (count) => {
  const { call, answers } = begin({ 'content-type': 'application/json' });
  const size = Math.ceil(body.length / count);
  for (let at = 0; at < body.length; at += size) {
    call.data(Buffer.alloc(0));
    call.data(body.subarray(at, at + size));
  }
  call.end();
  expect(answers).toHaveLength(1);
});

test.each([
  ['its own', 1],
  ['nobody’s', null],
])('X18 an error that nests too deep, in %s name, is not looked into, and the call ends', (_whose, id) => {
  const ends: string[] = [];
  const { call } = begin({ 'content-type': 'application/json' }, 404, 's', (how) => ends.push(how));
  call.data(Buffer.from(`{"jsonrpc":"2.0","id":${id},"error":${'['.repeat(200)}x${']'.repeat(200)}}`));
  call.end();
  expect(ends).toEqual(['refused']);
});
