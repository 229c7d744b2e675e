import { expect, test } from 'vitest';
import { parseEventId } from '../eras/legacy/event-stream.js';
import { eventText } from './sse-stream.js';

test('the data of an event is one line, also if its JSON contains line breaks', () => {
  expect(eventText(undefined, ['{"a":', Buffer.from('[1,\r\n2]'), '\n}']).toString()).toBe(
    'event: message\ndata: {"a":[1,  2] }\n\n',
  );
  expect(eventText('0-7', ['{}']).toString()).toBe('id: 0-7\nevent: message\ndata: {}\n\n');
});

test('the bytes of a part are not changed in place', () => {
  const part = Buffer.from('[1,\n2]');
  eventText(undefined, [part]);
  expect(part.toString()).toBe('[1,\n2]');
});

test.each([
  ['0-0', { stream: 0, seq: 0 }],
  ['12-345', { stream: 12, seq: 345 }],
  ['', undefined],
  ['1', undefined],
  ['1-', undefined],
  ['-1-1', undefined],
  ['1-1 ', undefined],
  ['1-1e3', undefined],
  ['9999999999999999-1', undefined],
])('the event id %j is read as %j', (text, id) => {
  expect(parseEventId(text)).toEqual(id);
});
