import fc from 'fast-check';
import { expect, test } from 'vitest';
import { HostError } from '../../kernel/errors.js';
import { errorFrame, messageFrame, readBrokerFrame, refusedFrame, welcomeFrame } from './broker-frames.js';
import {
  ackFrame,
  cancelFrame,
  deliverFrame,
  helloFrame,
  readClientFrame,
  releaseFrame,
  tellFrame,
} from './client-frames.js';

const read = (text: string | Buffer) => readClientFrame(Buffer.from(text), 100_000);
const body = Buffer.from('{"n":1.0,"big":18446744073709551615, "s":"\\u00e9é"}');

test('what a client writes the broker reads, bodies byte by byte', () => {
  expect(read(helloFrame({ key: 'k"\\é' }))).toEqual({
    kind: 'hello',
    key: 'k"\\é',
    mailbox: undefined,
    role: undefined,
  });
  const deliver = { kind: 'deliver', id: 'a', type: 'reply', to: 'alice', ttlMs: undefined, body } as const;
  const got = read(deliverFrame(deliver));
  expect(got).toEqual(deliver);
  expect('body' in got && got.body.equals(body)).toBe(true);
  expect(read(ackFrame({ seq: 7, lease: 'e-1.2' }))).toEqual({ kind: 'ack', seq: 7, lease: 'e-1.2' });
  expect(read(releaseFrame({ seq: 7, lease: 'e' }, 1.5, 'x'.repeat(300)))).toEqual({
    ...{ kind: 'release', seq: 7, lease: 'e', delayMs: 2, reason: 'x'.repeat(256) },
  });
  expect(read(tellFrame(undefined, body))).toEqual({ kind: 'tell', to: undefined, body });
  expect(read(cancelFrame('host', 'a'))).toEqual({ kind: 'cancel', to: 'host', id: 'a' });
});

test('what the broker writes a client reads', () => {
  const from = { mailbox: 'alice', role: undefined };
  const message = {
    seq: 1,
    lease: 'e-1.1',
    id: 'a',
    type: 'request',
    from,
    deliveries: 2,
    wasElsewhere: false,
    deadlineMs: -5,
    body,
  } as const;
  expect(readBrokerFrame(messageFrame(message))).toEqual({ kind: 'message', ...message });
  expect(readBrokerFrame(welcomeFrame({ mailbox: 'a', role: 'r' }, 'e', 7))).toMatchObject({ beganMsAgo: 7 });
  expect(readBrokerFrame(welcomeFrame({ mailbox: 'a', role: 'r' }, 'e'))).toEqual({
    ...{ kind: 'welcome', mailbox: 'a', role: 'r', epoch: 'e' },
  });
  const error = new HostError('overloaded', 'full', { reason: 'mailbox_full', execution: 'not_executed', limit: 3 });
  const refused = readBrokerFrame(refusedFrame('a', 'host', error));
  expect(refused?.kind === 'refused' && refused.error.toJSON()).toEqual(error.toJSON());
});

test('B7 a hello says which process it is of, and a message whose hands it was in; who says neither may be anybody', () => {
  expect(read(helloFrame({ key: 'k', instance: 'i-1' }))).toMatchObject({ kind: 'hello', instance: 'i-1' });
  expect(read(helloFrame({ key: 'k' }))).toMatchObject({ kind: 'hello', instance: undefined });
  for (const instance of ['7', '""', '"a b"', `"${'x'.repeat(129)}"`, 'null'])
    expect(read(`{"kind":"hello","v":1,"key":"k","instance":${instance}}`)).toMatchObject({ field: 'instance' });
  const said = (deliveries: number, more = '') => {
    const text = `{"kind":"message","seq":1,"lease":"l","id":"a","type":"request","from":{"mailbox":"w"},"body":{},"deliveries":${deliveries}${more}}`;
    const frame = readBrokerFrame(Buffer.from(text));
    return frame?.kind === 'message' && frame.wasElsewhere;
  };
  expect([said(1), said(2), said(2, ',"wasElsewhere":false'), said(2, ',"wasElsewhere":0')]).toEqual([
    ...[false, true, false, true],
  ]);
});

test('what is written in escapes, or with members nobody knows, is the same frame', () => {
  expect(read('{ "\\u006bind" : "\\u0061ck", "new": [1], "seq":1, "lease":"l" } ')).toMatchObject({
    kind: 'ack',
    seq: 1,
  });
});

test.each([
  '',
  '{}',
  'null',
  '[]',
  '{"kind":"ack","seq":1,"lease":"l"}x',
  '{"kind":"ack","seq":1,"lease":"l"',
  '{"kind":"ack","kind":"ack","seq":1,"lease":"l"}',
  '{"kind":"ack","\\u006bind":"deliver","seq":1,"lease":"l"}',
  '{"kind":"ack","seq":1.0,"lease":"l"}',
  '{"kind":"ack","seq":"1","lease":"l"}',
  '{"kind":"ack","seq":1e3,"lease":"l"}',
  '{"kind":"ack","seq":9007199254740993,"lease":"l"}',
  '{"kind":"ack","seq":1,"lease":"a b"}',
  '{"kind":"hello","v":"1","key":"k"}',
  '{"kind":"hello","v":1,"key":"k","role":7}',
  '{"kind":"cancel","to":"HOST","id":"a"}',
  `{"kind":"ack","seq":1,"lease":"l"${',"x":1'.repeat(40)}}`,
])('%s is none', (text) => {
  expect(read(text).kind).toBe('bad');
});

test('a body that is too deep, or has too many values, is refused by the id of its message', () => {
  const deep = `{"kind":"deliver","id":"a","type":"request","to":"host","body":{"x":${'['.repeat(128)}${']'.repeat(128)}}}`;
  expect(read(deep)).toMatchObject({ kind: 'refused', id: 'a', to: 'host', field: 'body' });
  const many = `{"kind":"deliver","id":"a","type":"request","to":"host","body":{"x":[${'1,'.repeat(99)}1]}}`;
  expect(readClientFrame(Buffer.from(many), 50)).toMatchObject({ kind: 'refused', id: 'a' });
  expect(readClientFrame(Buffer.from(many), 200)).toMatchObject({ kind: 'deliver', id: 'a' });
});

test('an error of a broker is read as far as it is known; the rest of it goes nowhere', () => {
  const frame = readBrokerFrame(
    Buffer.from('{"kind":"error","error":{"code":"nonsense","message":"a\\u001b[31mb","stack":"x","limit":"3"}}'),
  );
  expect(frame?.kind === 'error' && frame.error.toJSON()).toEqual({
    ...{ code: 'protocol_error', message: expect.not.stringContaining('\u001b'), retryable: false },
    execution: 'uncertain',
  });
  const known = readBrokerFrame(errorFrame(new HostError('transport', 'gone', { reason: 'replaced' })));
  expect(known?.kind === 'error' && known.error.details.reason).toBe('replaced');
});

test('neither side ever throws, whatever the bytes', () => {
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 200 }),
    fc.json().map((text) => Buffer.from(text)),
    fc.json().map((text) => Buffer.from(`{"kind":"message","body":${text},"from":${text},"error":${text}}`)),
  );
  fc.assert(
    fc.property(bytes, (given) => {
      readClientFrame(Buffer.from(given), 1_000);
      readBrokerFrame(Buffer.from(given));
    }),
  );
});
