import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type SseEvent, SseParser } from './sse-parser.js';

interface Seen {
  id?: string | undefined;
  event?: string | undefined;
  retryMs?: number | undefined;
  data: string;
}

function parse(chunks: Buffer[], maxBytes = 1_000, clean = false): { events: Seen[]; tooLarge: number[] } {
  const events: Seen[] = [];
  const tooLarge: number[] = [];
  const parser = new SseParser(
    maxBytes,
    (event: SseEvent) => events.push({ ...event, data: event.data.toString() }),
    (bytes) => tooLarge.push(bytes),
  );
  for (const chunk of chunks) parser.push(chunk);
  if (clean) parser.end();
  return { events, tooLarge };
}

const whole = (text: string) => parse([Buffer.from(text)]).events;
const bytewise = (text: string) => [...Buffer.from(text)].map((byte) => Buffer.from([byte]));

test.each<[string, string, Seen[]]>([
  ['one line of data', 'data: {"a":1}\n\n', [{ data: '{"a":1}' }]],
  ['no space after the colon', 'data:x\n\n', [{ data: 'x' }]],
  ['only one space is removed', 'data:  x\n\n', [{ data: ' x' }]],
  ['several lines are joined', 'data: a\ndata: b\ndata:\ndata: c\n\n', [{ data: 'a\nb\n\nc' }]],
  ['CR ends lines', 'data: a\r\rdata: b\r\r', [{ data: 'a' }, { data: 'b' }]],
  ['CRLF ends lines', 'data: a\r\n\r\ndata: b\r\n\r\n', [{ data: 'a' }, { data: 'b' }]],
  ['line ends may be mixed', 'data: a\r\ndata: b\rdata: c\n\r\n', [{ data: 'a\nb\nc' }]],
  ['comments are ignored', ': ping\n\n:\n\ndata: a\n: in between\ndata: b\n\n', [{ data: 'a\nb' }]],
  ['a byte order mark before the first line is ignored', '\ufeffdata: a\n\n', [{ data: 'a' }]],
  ['a byte order mark on a later line is part of the field name', 'data: a\n\n\ufeffdata: b\n\n', [{ data: 'a' }]],
  [
    'id, event and retry',
    'id: 7\nevent: message\nretry: 500\ndata: x\n\n',
    [{ id: '7', event: 'message', retryMs: 500, data: 'x' }],
  ],
  ['an id alone is an event without data', 'id: 7\ndata:\n\n', [{ id: '7', data: '' }]],
  ['a retry alone is an event too', 'retry: 500\n\n', [{ retryMs: 500, data: '' }]],
  ['an empty id clears the last id', 'id\ndata: x\n\n', [{ id: '', data: 'x' }]],
  ['an id with a control character is ignored', 'id: a\0b\ndata: x\n\n', [{ data: 'x' }]],
  ['a retry that is no number is ignored', 'retry: 5s\ndata: x\n\n', [{ data: 'x' }]],
  ['unknown fields are ignored', 'foo: bar\ndatabase: y\ndata: x\n\n', [{ data: 'x' }]],
  ['an event name alone is ignored', 'event: x\n\ndata: y\n\n', [{ data: 'y' }]],
  ['an unfinished event is not delivered', 'data: a\n\ndata: b\n', [{ data: 'a' }]],
])('%s', (_name, text, expected) => {
  expect(whole(text)).toEqual(expected);
  expect(parse(bytewise(text)).events).toEqual(expected);
});

test('however the bytes are cut, the events are the same', () => {
  const line = fc.constantFrom('data: {"x":"é"}', 'data:', 'id: 4', 'retry: 9', 'event: m', ': c', 'junk', '');
  const end = fc.constantFrom('\n', '\r', '\r\n');
  const text = fc.array(fc.tuple(line, end), { maxLength: 30 }).map((parts) => parts.flat().join(''));
  fc.assert(
    fc.property(text, fc.array(fc.nat({ max: 400 }), { maxLength: 8 }), (stream, cuts) => {
      const bytes = Buffer.from(stream);
      const places = [0, ...cuts.map((cut) => Math.min(cut, bytes.length)).sort((a, b) => a - b), bytes.length];
      const chunks = places.slice(1).map((to, i) => bytes.subarray(places[i], to));
      expect(parse(chunks).events).toEqual(parse([bytes]).events);
    }),
    { numRuns: 2_000 },
  );
}, 180_000);

describe('size', () => {
  const big = (bytes: number) => Buffer.concat([Buffer.from('data: '), Buffer.alloc(bytes, 0x61), Buffer.from('\n\n')]);

  test('an event of exactly the limit passes, an event with one byte more does not', () => {
    expect(parse([big(1_000)]).events[0]?.data).toHaveLength(1_000);
    expect(parse([big(1_001)])).toEqual({ events: [], tooLarge: [1_001] });
  });

  test('an event without end is refused before it is buffered', () => {
    const { events, tooLarge } = parse(Array.from({ length: 5_000 }, () => Buffer.from('data')));
    expect(events).toEqual([]);
    expect(tooLarge).toHaveLength(1);
    expect(tooLarge[0]).toBeLessThan(1_100);
  });

  test('many small lines of one event add up to the limit', () => {
    expect(parse([Buffer.from('data:\n'.repeat(1_100)), Buffer.from('\n')])).toMatchObject({
      events: [],
      tooLarge: [1_001],
    });
  });

  test.each([
    ['in one chunk', [big(2_000)], 'aaa'],
    ['in an unfinished line', [Buffer.from(`event: message\ndata: abc${'x'.repeat(2_000)}`)], 'abc'],
    ['over several lines', [Buffer.from(`data: ab\ndata:c${'x'.repeat(2_000)}\n`)], 'ab\n'],
    ['none if the event has no data', [Buffer.from(`other: abc${'x'.repeat(2_000)}`)], ''],
  ])('W14 the first bytes of data of an event above the limit are reported: %s', (_name, chunks, expected) => {
    const heads: string[] = [];
    const parser = new SseParser(
      1_000,
      () => {},
      (_bytes, head) => heads.push(head.toString('latin1', 0, 3)),
    );
    for (const chunk of chunks) parser.push(chunk);
    expect(heads).toEqual([expected]);
  });

  test('after an event above the limit the parser ignores all bytes', () => {
    expect(parse([big(2_000), Buffer.from('data: x\n\n')]).events).toEqual([]);
  });
});

test('data within one chunk is not copied', () => {
  const chunk = Buffer.from('data: abc\n\n');
  let data: Buffer | undefined;
  new SseParser(
    100,
    (event) => {
      data = event.data;
    },
    () => {},
  ).push(chunk);
  expect(data?.buffer).toBe(chunk.buffer);
});

test('at a clean end a last event without its blank line counts, unless it can be requested again', () => {
  expect(parse([Buffer.from('data: {"a":1}\n')], 100, true).events).toEqual([{ data: '{"a":1}' }]);
  expect(parse([Buffer.from('data: {"a":1}')], 100, true).events).toEqual([{ data: '{"a":1}' }]);
  expect(parse([Buffer.from('id: 1\ndata: {"a"')], 100, true).events).toEqual([]);
});
