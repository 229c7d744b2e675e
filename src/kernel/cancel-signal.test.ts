import { expect, test } from 'vitest';
import { Cancellation, isCancelSignal } from './cancel-signal.js';

test('listeners are called once, in order, unless they were removed or added after the abort', () => {
  const heard: string[] = [];
  const cancellation = new Cancellation();
  const gone = () => heard.push('gone');
  const first = () => heard.push('first');
  cancellation.addEventListener('abort', first);
  cancellation.addEventListener('abort', first);
  cancellation.addEventListener('abort', gone);
  cancellation.addEventListener('abort', () => heard.push('third'));
  cancellation.removeEventListener('abort', gone);
  expect([cancellation.aborted, heard]).toEqual([false, []]);
  cancellation.abort();
  cancellation.abort();
  cancellation.addEventListener('abort', () => heard.push('late'));
  expect([cancellation.aborted, heard]).toEqual([true, ['first', 'third']]);
});

test('a listener may remove itself and add another, and the order is kept', () => {
  const heard: string[] = [];
  const cancellation = new Cancellation();
  const first = () => heard.push('first');
  cancellation.addEventListener('abort', first);
  cancellation.addEventListener('abort', () => heard.push('second'));
  cancellation.removeEventListener('abort', first);
  cancellation.addEventListener('abort', () => heard.push('third'));
  cancellation.abort();
  expect(heard).toEqual(['second', 'third']);
});

test('listeners that are added or removed during the abort do not change which ones are called', () => {
  const heard: string[] = [];
  const cancellation = new Cancellation();
  const second = () => heard.push('second');
  cancellation.addEventListener('abort', () => {
    cancellation.removeEventListener('abort', second);
    cancellation.addEventListener('abort', () => heard.push('never'));
    heard.push('first');
  });
  cancellation.addEventListener('abort', second);
  cancellation.abort();
  expect(heard).toEqual(['first', 'second']);
});

test.each([
  [new Cancellation(), true],
  [new AbortController().signal, true],
  [{ aborted: false, addEventListener: () => {} }, false],
  [undefined, false],
  ['signal', false],
])('%s is a cancel signal: %s', (value, isOne) => {
  expect(isCancelSignal(value)).toBe(isOne);
});
