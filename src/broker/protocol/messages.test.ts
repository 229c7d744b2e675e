import { expect, test } from 'vitest';
import { LIMITS } from '../../kernel/limits.js';
import { ERAS } from '../../session/eras/eras.js';
import { Envelope, scanEnvelope } from '../../wire/envelope.js';
import { joinedParts } from '../../wire/json-edit.js';
import { type HostMessage, readHostMessage, readWorkerMessage, writeMessage } from './messages.js';
import { manifestBody, readManifestBody, readReplyBody, resultBody } from './reply-body.js';

const [{ name: era }] = ERAS as [(typeof ERAS)[number]];

/** An object with this many levels. */
const nested = (levels: number): string => `{"a":${'['.repeat(levels - 1)}1${']'.repeat(levels - 1)}}`;

const answer = (result: string): Buffer => Buffer.from(`{"jsonrpc":"2.0","id":1,"result":${result}}`);
const faultOf = (bytes: Buffer) => scanEnvelope(bytes, 0, bytes.length, new Envelope());
const listOf = (tool: string): string => `{"tools":[${tool}]}`;

const read = (message: HostMessage) => readHostMessage(joinedParts(writeMessage(message)));

test('a worker reads a result with as many levels as a server may send', () => {
  const levels = LIMITS.depth - 1;
  expect([faultOf(answer(nested(levels))), faultOf(answer(nested(levels + 1)))]).toEqual([undefined, 'too_deep']);
  const bytes = Buffer.from(nested(levels));
  const message = read({ op: 'reply', key: 'k', digest: undefined, body: resultBody(bytes, era) });
  expect(message?.op === 'reply' && readReplyBody(message.body)).toEqual({ kind: 'result', bytes, era });
});

test('a worker reads a tool with as many levels as a server may send', () => {
  const levels = LIMITS.depth - 3;
  const faults = [levels, levels + 1].map((each) => faultOf(answer(listOf(nested(each)))));
  expect(faults).toEqual([undefined, 'too_deep']);
  const tool = { server: 's', name: 't', raw: Buffer.from(nested(levels)) };
  const message = read({ op: 'manifest', id: 'm', body: manifestBody({ revision: 'r', tools: [tool] }) });
  expect(message?.op === 'manifest' && readManifestBody(message.body).tools).toEqual([tool]);
});

test('a message with more levels than a server may send is refused', () => {
  const levels = LIMITS.depth;
  expect(() => read({ op: 'progress', key: 'k', params: Buffer.from(nested(levels + 1)) })).toThrow(
    expect.objectContaining({ code: 'protocol_error' }),
  );
  const call = (args: string) =>
    readWorkerMessage(Buffer.from(`{"v":1,"op":"call","key":"k","deadlineMs":1,"tool":"t","args":${args}}`));
  expect(call(nested(levels - 1)).op).toBe('call');
  expect(() => call(nested(levels))).toThrow(expect.objectContaining({ code: 'invalid_request' }));
});
