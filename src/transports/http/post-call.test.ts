import { describe, expect, test } from 'vitest';
import { modernEra } from '../../../test/fakes/eras.js';
import { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { type EraRules, requestFrame } from '../../wire/channel.js';
import { MessageDecoder, newCounters } from '../../wire/envelope.js';
import type { ResponseHeaders } from './headers.js';
import type { HttpExchange } from './http-exchange.js';
import { type CallHost, PostCall } from './post-call.js';

const json = { 'content-type': 'application/json' };
const events = { 'content-type': 'text/event-stream' };
const result = (id: unknown, value: unknown = 'ok') => JSON.stringify({ jsonrpc: '2.0', id, result: value });
const failure = (id: unknown, code: unknown) => JSON.stringify({ jsonrpc: '2.0', id, error: { code, message: 'no' } });
const lost = new HostError('transport', 'the connection was lost', { reason: 'reset' });
const notification = '{"jsonrpc":"2.0","method":"notifications/progress","params":1}';

interface NewCall {
  sessionId?: string;
  refuseHead?: HostError;
  /** `none`: the request is sent before an era is agreed on. */
  era?: EraRules | 'none';
  opens?: EraRules;
}

/** A call with id 1, and all events that its host receives, in order. */
function newCall({ sessionId, refuseHead, era = modernEra, opens }: NewCall = {}) {
  const decoder = new MessageDecoder(newCounters());
  const heard: string[] = [];
  const errors: HostError[] = [];
  let aborts = 0;
  let decodes = 0;
  const note = (what: string) => void heard.push(what);
  const host: CallHost = {
    server: 'fake',
    decode: (bytes, deliver) => {
      decodes++;
      decoder.decode(bytes, 0, bytes.length, deliver);
    },
    message: (envelope, frame) =>
      note(`${envelope.kind} for ${frame.id}: ${envelope.isTooDeep ? 'too deep' : envelope.payload()?.toString()}`),
    active: () => note('active'),
    junk: () => note('junk'),
    opened: (_call, status) => {
      note(`opened ${status}`);
      return refuseHead;
    },
    answered: () => note('answered'),
    failed: (_call, error) => {
      errors.push(error);
      note(`failed ${error.code} ${error.details.reason}`);
    },
    refused: (_call, status, headers, rpcCode) => note(`refused ${status} ${headers['content-type']} ${rpcCode}`),
    broke: (_call, error) => {
      errors.push(error);
      note(`broke ${error.code} ${error.details.reason}`);
    },
    released: () => note('released'),
  };
  const call = new PostCall(
    host,
    requestFrame(1, 'tools/call', undefined, opens && { opens }),
    era === 'none' ? undefined : era,
  );
  call.sessionId = sessionId;
  call.exchange = { abort: () => aborts++ } as unknown as HttpExchange;
  /** The events since the last call, without the signs of activity. */
  const look = () => heard.splice(0).filter((what) => what !== 'active' && !what.startsWith('opened'));
  /** A whole response. */
  function respond(status: number, headers: ResponseHeaders, ...chunks: string[]): HostError | undefined {
    const error = call.head(status, headers);
    if (error) return error;
    for (const chunk of chunks) {
      const refused = call.data(Buffer.from(chunk));
      if (refused) return refused;
    }
    call.end();
    return undefined;
  }
  return { call, heard, look, errors, respond, aborts: () => aborts, decodes: () => decodes };
}

describe('the phases of a request', () => {
  test('W24 a request is being written after its start, and written when the response begins', () => {
    const { call, heard } = newCall();
    expect([call.frame.phase, call.pendingBytes, call.isControl, call.over]).toEqual([
      'queued',
      call.frame.bytes,
      false,
      false,
    ]);
    call.started();
    expect([call.frame.phase, heard.splice(0)]).toEqual(['writing', ['active']]);
    call.head(200, json);
    expect([call.frame.phase, heard.splice(0)]).toEqual(['written', ['active', 'opened 200']]);
    call.data(Buffer.from(result(1)));
    expect(heard.splice(0)).toEqual(['active']);
    call.end();
    expect([call.over, heard.splice(0)]).toEqual([true, ['answered', 'result for 1: "ok"']]);
    call.released();
    expect(heard).toEqual(['released']);
  });

  test('an error thrown by the host refuses the response at its head', () => {
    const { call } = newCall({ refuseHead: lost });
    expect(call.head(200, json)).toBe(lost);
  });

  test('an abandoned call aborts its exchange, and gets no further event', () => {
    const { call, look, aborts, respond } = newCall();
    call.giveUp();
    expect([call.over, aborts()]).toEqual([true, 1]);
    respond(200, json, '{}');
    call.failed(lost);
    call.fail(lost);
    expect(look()).toEqual([]);
    const refusal = newCall();
    refusal.call.giveUp();
    refusal.respond(429, json, failure(1, -32_602));
    expect([refusal.look(), refusal.decodes()]).toEqual([[], 0]);
    const other = newCall().call;
    other.exchange = undefined;
    other.giveUp();
    expect(other.over).toBe(true);
  });

  test('a call fails only once', () => {
    for (const fail of ['fail', 'failed'] as const) {
      const { call, look, errors } = newCall();
      call[fail](lost);
      expect(call.over).toBe(true);
      call.fail(lost);
      call.failed(lost);
      expect([call.over, look(), errors]).toEqual([true, ['failed transport reset'], [lost]]);
    }
  });

  test('only an open event stream is streaming', () => {
    const { call } = newCall();
    expect(call.streaming).toBe(false);
    call.head(200, events);
    expect(call.streaming).toBe(true);
    call.exchange = undefined;
    expect(call.streaming).toBe(false);
    const plain = newCall().call;
    plain.head(200, json);
    expect(plain.streaming).toBe(false);
  });
});

describe('a JSON body', () => {
  const body = Buffer.from(result(1, 'x'.repeat(10_000)));
  const whole = ['answered', `result for 1: "${'x'.repeat(10_000)}"`];

  test('a body that arrives byte by byte is copied into one buffer; no piece is stored', () => {
    const { call, look } = newCall();
    call.head(200, json);
    call.data(body.subarray(0, 1));
    // One buffer for all pieces: a kept piece would show its last content.
    const piece = Buffer.alloc(1);
    for (let at = 1; at < body.length; at++) {
      body.copy(piece, 0, at, at + 1);
      call.data(piece);
    }
    call.end();
    expect(look()).toEqual(whole);
  });

  test.each([1, 2, 3])('a body in %i pieces arrives whole, also with empty ones between', (count) => {
    const { call, look } = newCall();
    call.head(200, json);
    const size = Math.ceil(body.length / count);
    for (let at = 0; at < body.length; at += size) {
      call.data(Buffer.alloc(0));
      call.data(body.subarray(at, at + size));
    }
    call.end();
    expect(look()).toEqual(whole);
  });

  test.each([
    ['application/json; charset=utf-8'],
    ['APPLICATION/JSON'],
    [undefined],
    [['application/json', 'text/plain']],
  ])('content type %j is read as JSON', (type) => {
    const { look, respond } = newCall();
    expect(respond(200, { 'content-type': type }, result(1))).toBeUndefined();
    expect(look()).toEqual(['answered', 'result for 1: "ok"']);
  });

  test.each([[200], [299]])('status %i with another content type is a protocol error', (status) => {
    const { call } = newCall();
    expect(call.head(status, { 'content-type': 'text/html' })).toMatchObject({
      code: 'protocol_error',
      message: "server 'fake' answered with neither JSON nor an event stream",
      details: { server: 'fake', reason: 'content_type', execution: 'uncertain', httpStatus: status },
    });
  });

  test('an answer with another id is junk, and the call then has no answer', () => {
    const { look, respond, errors } = newCall();
    respond(200, json, result(2));
    expect(look()).toEqual(['junk', 'failed protocol_error no_answer']);
    expect(errors[0]).toMatchObject({
      message: "server 'fake' ended its response without an answer to the request",
      details: { server: 'fake', phase: 'written', execution: 'uncertain', httpStatus: 200 },
    });
    expect(errors[0]?.details.rpcCode).toBeUndefined();
  });

  test('an error without a request id is no answer, but its code is stored', () => {
    const { look, respond, errors } = newCall();
    respond(200, json, failure(null, -32_600));
    expect(look()).toEqual(['failed protocol_error no_answer']);
    expect(errors[0]?.details.rpcCode).toBe(-32_600);
  });

  test.each([
    [64 * 1024, -32_600],
    [64 * 1024 + 1, undefined],
  ])('of an error without a request id that has %i bytes, the code is %s', (bytes, code) => {
    const { look, respond, errors } = newCall();
    const frame = '{"code":-32600,"message":""}'.length;
    const error = `{"code":-32600,"message":"${'x'.repeat(bytes - frame)}"}`;
    respond(200, json, `{"jsonrpc":"2.0","id":null,"error":${error}}`);
    expect([look(), errors[0]?.details.rpcCode]).toEqual([['failed protocol_error no_answer'], code]);
  });

  test('messages before the answer are forwarded; a second answer is junk', () => {
    const { look, respond } = newCall();
    respond(200, json, `[${notification},${result(1)},${result(1)}]`);
    expect(look()).toEqual(['notification for 1: 1', 'answered', 'result for 1: "ok"', 'junk']);
  });

  test.each([[202], [204]])('status %i has no body, whatever its type: no answer', (status) => {
    const { look, respond } = newCall();
    respond(status, json, result(1));
    expect(look()).toEqual(['failed protocol_error no_answer']);
  });

  test('an empty body is no answer', () => {
    const { look, respond } = newCall();
    respond(200, json);
    expect(look()).toEqual(['failed protocol_error no_answer']);
  });

  test('a content length above the bound is refused at the head, and a body above the bound at its bytes', () => {
    const tooLarge = { code: 'result_too_large' };
    const announced = (length: number) => newCall().call.head(200, { ...json, 'content-length': String(length) });
    expect(announced(LIMITS.frameBytes)).toBeUndefined();
    expect(announced(LIMITS.frameBytes + 1)).toMatchObject(tooLarge);
    const { call } = newCall();
    call.head(200, json);
    expect(call.data(Buffer.alloc(LIMITS.frameBytes))).toBeUndefined();
    expect(call.data(Buffer.alloc(1))).toMatchObject(tooLarge);
  });

  test('a connection that is lost fails the call', () => {
    const { call, look } = newCall();
    call.head(200, json);
    call.failed(lost);
    expect(look()).toEqual(['failed transport reset']);
  });
});

describe('an event stream', () => {
  const event = (data: string, more = '') => `${more}data: ${data}\n\n`;

  test.each([
    [200, 'text/event-stream'],
    [202, 'Text/Event-Stream; charset=utf-8'],
  ])('status %i, %s: messages come as they arrive, the answer ends the call', (status, type) => {
    const { call, look } = newCall();
    call.head(status, { 'content-type': type });
    call.data(Buffer.from(event(notification)));
    expect([call.over, look()]).toEqual([false, ['notification for 1: 1']]);
    call.data(Buffer.from(event(result(1))));
    expect([call.over, look()]).toEqual([true, ['answered', 'result for 1: "ok"']]);
    call.end();
    expect(look()).toEqual([]);
  });

  test('its last event counts without the empty line that ends it', () => {
    const { look, respond } = newCall();
    respond(200, events, `data: ${result(1)}\n`);
    expect(look()).toEqual(['answered', 'result for 1: "ok"']);
  });

  test('a stream that ends without the answer is broken, not finished: the rest can be fetched', () => {
    const { call, look, errors, respond } = newCall();
    respond(200, events, event(notification, 'id: e1\nretry: 250\n'));
    expect([call.over, call.lastEventId, call.retryMs]).toEqual([false, 'e1', 250]);
    expect(look()).toEqual(['notification for 1: 1', 'broke transport stream_ended']);
    expect(errors[0]).toMatchObject({ details: { execution: 'uncertain', phase: 'written', httpStatus: 200 } });
    call.receive(Buffer.from(result(1)));
    expect([call.over, look()]).toEqual([true, ['answered', 'result for 1: "ok"']]);
  });

  test('an empty event id clears the last id; events without an id keep it', () => {
    const { call } = newCall();
    call.head(200, events);
    call.data(Buffer.from('id: a\ndata:\n\n'));
    expect(call.lastEventId).toBe('a');
    call.data(Buffer.from(event(notification)));
    expect([call.lastEventId, call.retryMs]).toEqual(['a', undefined]);
    call.data(Buffer.from('id:\ndata:\n\n'));
    expect(call.lastEventId).toBeUndefined();
  });

  test('W24 a retry time is valid until the next one; an event without data is not decoded', () => {
    const { call, look, decodes } = newCall();
    call.head(200, events);
    call.data(Buffer.from('retry: 50\nid: a\ndata:\n\n'));
    call.data(Buffer.from(event(notification)));
    expect([call.retryMs, decodes()]).toEqual([50, 1]);
    expect(look()).toEqual(['notification for 1: 1']);
  });

  test('a lost connection breaks the stream; a loss after the answer is ignored', () => {
    const { call, look } = newCall();
    call.head(200, events);
    call.failed(lost);
    expect([call.over, look()]).toEqual([false, ['broke transport reset']]);
    call.data(Buffer.from(event(result(1))));
    look();
    call.failed(lost);
    call.end();
    expect(look()).toEqual([]);
  });

  test('an event above the bound fails the call instead of breaking the stream', () => {
    const { call, look } = newCall();
    call.head(200, events);
    const error = call.data(Buffer.from(`data: ${'x'.repeat(LIMITS.frameBytes + 16)}`));
    expect(error).toMatchObject({ code: 'result_too_large' });
    call.failed(error as HostError);
    expect([call.over, look()]).toEqual([true, ['failed result_too_large frame_too_large']]);
  });
});

describe('a refusal', () => {
  test.each([
    [199, 'refused 199 application/json undefined'],
    [300, 'refused 300 application/json undefined'],
    [400, 'refused 400 application/json undefined'],
    [503, 'refused 503 application/json undefined'],
  ])('status %i is reported to the host', (status, expected) => {
    const { call, look, respond } = newCall();
    respond(status, json);
    expect([call.over, look()]).toEqual([true, [expected]]);
    call.end();
    expect(look()).toEqual([]);
  });

  test('the status counts also when the page is cut off', () => {
    const { call, look } = newCall();
    call.head(502, { 'content-type': 'text/html' });
    call.data(Buffer.from('<html>'));
    call.failed(lost);
    expect(look()).toEqual(['refused 502 text/html undefined']);
  });

  test('an error page is read to 64 KiB; then the connection is given up', () => {
    const { call, look, aborts } = newCall();
    call.head(500, json);
    call.data(Buffer.alloc(64 * 1024, 0x20));
    expect([aborts(), look()]).toEqual([0, []]);
    call.data(Buffer.from(' '));
    expect([aborts(), look()]).toEqual([1, ['refused 500 application/json undefined']]);
  });

  test('W24 a refusal that was cut off is reported to the host once, and not parsed', () => {
    const { call, look, decodes } = newCall();
    call.head(400, { 'content-type': 'application/json; charset=utf-8' });
    call.data(Buffer.from(failure(1, -32_602)));
    call.data(Buffer.alloc(64 * 1024, 0x20));
    call.end();
    expect(look()).toEqual(['refused 400 application/json; charset=utf-8 undefined']);
    expect([call.refusalAnswer, decodes()]).toEqual([undefined, 0]);
  });

  test.each([
    [429, 1, -32_602],
    [400, null, -32_001],
  ])('status %i with a page above 64 KiB is reported without the error at its beginning: id %j', (status, id, code) => {
    const { call, look } = newCall();
    call.head(status, json);
    call.data(Buffer.from(failure(id, code)));
    call.data(Buffer.alloc(64 * 1024, 0x20));
    expect([call.over, look()]).toEqual([true, [`refused ${status} application/json undefined`]]);
  });

  test('W24 a refusal of exactly 64 KiB is parsed', () => {
    const { call, look } = newCall();
    call.head(400, { 'content-type': 'application/json; charset=utf-8' });
    const body = failure(1, -32_602);
    call.data(Buffer.from(body));
    call.data(Buffer.alloc(64 * 1024 - body.length, 0x20));
    call.end();
    expect(look()).toEqual(['refused 400 application/json; charset=utf-8 undefined']);
    expect(call.refusalAnswer?.bytes.toString()).toBe('{"code":-32602,"message":"no"}');
  });

  test('the code of an error without a request id is forwarded', () => {
    const { look, respond } = newCall();
    respond(400, json, failure(null, -32_001));
    expect(look()).toEqual(['refused 400 application/json -32001']);
  });

  test.each([
    ['no number', 'x'],
    ['null', null],
  ])('a code that is %s is ignored', (_, code) => {
    const { look, respond } = newCall();
    respond(400, json, failure(null, code));
    expect(look()).toEqual(['refused 400 application/json undefined']);
  });

  test('an error that is no object has no code', () => {
    const { look, respond } = newCall();
    respond(400, json, '{"jsonrpc":"2.0","id":null,"error":null}');
    expect(look()).toEqual(['refused 400 application/json undefined']);
  });

  test.each([
    ['plain text', { 'content-type': 'text/plain' }],
    ['encoded', { ...json, 'content-encoding': 'gzip' }],
    ['of no type', {}],
  ])('a body that is %s is not parsed', (_, headers: ResponseHeaders) => {
    const { look, respond } = newCall();
    respond(500, headers, result(1));
    expect(look()).toEqual([`refused 500 ${headers['content-type']} undefined`]);
  });

  test('an error with the id of the request is its answer, if the status raises no question about session or token', () => {
    const { call, look, respond } = newCall();
    respond(429, { 'content-type': 'Application/JSON' }, failure(1, -32_602));
    expect([call.over, look()]).toEqual([true, ['answered', 'error for 1: {"code":-32602,"message":"no"}']]);
  });

  test.each([
    [401, {}],
    [403, { 'www-authenticate': 'Bearer error="insufficient_scope"' }],
  ])('%i is about the token, also when the body answers the request', (status, headers) => {
    const { look, respond } = newCall();
    respond(status, { ...json, ...headers }, failure(1, -32_000));
    expect(look()).toEqual([`refused ${status} application/json undefined`]);
  });

  test('404 in a session is the end of the session, unless the method is unknown', () => {
    const lost = newCall({ sessionId: 's' });
    lost.respond(404, json, failure(1, -32_001));
    expect(lost.look()).toEqual(['refused 404 application/json undefined']);
    const unknown = newCall({ sessionId: 's' });
    unknown.respond(404, json, failure(1, -32_601));
    expect(unknown.look()[0]).toBe('answered');
    const odd = newCall({ sessionId: 's' });
    odd.respond(404, json, result(1, { code: -32_601 }));
    expect(odd.look()).toEqual(['refused 404 application/json undefined']);
    const outside = newCall();
    outside.respond(404, json, failure(1, -32_001));
    expect([outside.look(), outside.call.refusalAnswer !== undefined]).toEqual([
      ['refused 404 application/json undefined'],
      true,
    ]);
  });

  test('W27 with status 400 the answer is held until the session or the era was checked', () => {
    const inside = newCall({ sessionId: 's' });
    inside.respond(400, json, failure(1, -32_602));
    expect(inside.look()).toEqual(['refused 400 application/json undefined']);
    expect(inside.call.refusalAnswer?.bytes.toString()).toBe('{"code":-32602,"message":"no"}');
    const outside = newCall();
    outside.respond(400, json, failure(1, -32_602));
    expect([outside.look(), outside.call.refusalAnswer?.bytes.toString()]).toEqual([
      ['refused 400 application/json undefined'],
      '{"code":-32602,"message":"no"}',
    ]);
    // A result is no refusal, and is not stored as a refusal.
    const odd = newCall({ sessionId: 's' });
    odd.respond(400, json, result(1));
    expect([odd.look(), odd.call.refusalAnswer]).toEqual([['refused 400 application/json undefined'], undefined]);
  });

  test.each([
    ['that is sent before an era is agreed on', { era: 'none' }],
    ['that opens a connection', { opens: modernEra }],
  ] as const)('an error with status 400 answers a request %s: no session or era is in doubt', (_what, sent) => {
    const { call, look, respond } = newCall(sent);
    respond(400, json, failure(1, -32_602));
    expect([call.isInDoubt, look()]).toEqual([false, ['answered', 'error for 1: {"code":-32602,"message":"no"}']]);
    expect(call.refusalAnswer).toBeUndefined();
  });

  test('a status above 499 raises no question about the session', () => {
    const { look, respond } = newCall({ sessionId: 's' });
    respond(500, json, failure(1, -32_603));
    expect(look()[0]).toBe('answered');
  });

  test.each([
    ['its own id', 1, 404],
    ['no id', null, 404],
    ['its own id', 1, 400],
  ])('X18 an error that nests too deep is not parsed: with %s (%s) and status %i', (_name, id, status) => {
    const { call, look } = newCall({ sessionId: 's' });
    call.head(status, json);
    call.data(Buffer.from(`{"jsonrpc":"2.0","id":${id},"error":${'['.repeat(200)}x${']'.repeat(200)}}`));
    call.end();
    expect(look()).toEqual([`refused ${status} application/json undefined`]);
    expect(call.refusalAnswer).toBeUndefined();
  });
});
