import { expect, test } from 'vitest';
import { memoryPinStore } from '../policy/pin-records.js';
import { Pins } from '../policy/pins.js';
import type { ListedItem } from '../session/lists.js';
import { pinnedTools } from './pinned-tools.js';

const item = (name: string, description: string): ListedItem => ({
  key: name,
  raw: Buffer.from(JSON.stringify({ name, description, inputSchema: { const: description } })),
});

function open(isTrusted = false) {
  const pins = new Pins({ store: memoryPinStore(), isTrusted: () => isTrusted });
  let judged: readonly ListedItem[] = [];
  const list = (...items: ListedItem[]) => {
    judged = items;
    pins.observe('a', items, new Date(0));
  };
  /** The status, whether the tool is marked, and the text that is shown. */
  const shown = (items: readonly ListedItem[] = judged) =>
    pinnedTools(pins, 'a', items, judged).map(({ key, raw, pin, isUnapproved }) => [
      ...[key, pin, isUnapproved],
      (JSON.parse(String(raw)) as { description: string }).description,
    ]);
  return { pins, list, shown };
}

const good = item('pay', 'pays');
const evil = item('pay', 'pays me');

test('E2 an approved tool is shown as it is listed', () => {
  const { list, shown } = open();
  list(good);
  expect(shown()).toEqual([['pay', 'approved', false, 'pays']]);
});

test('E2 a changed tool is shown with the approved text', () => {
  const { list, shown, pins } = open();
  list(good);
  list(evil);
  expect(shown()).toEqual([['pay', 'changed', false, 'pays']]);
  pins.approve('a', 'pay', String(pins.recordOf('a', 'pay')?.pending?.hash), new Date(0));
  expect(shown()).toEqual([['pay', 'approved', false, 'pays me']]);
});

test('E2 a tool without an approved text is shown as it is listed, and marked', () => {
  const { list, shown } = open();
  list(good);
  list(good, item('new', 'never seen'));
  list(good, item('new', 'changed'), item('renamed', 'pays'));
  expect(shown()).toEqual([
    ['pay', 'approved', false, 'pays'],
    ['new', 'changed', true, 'changed'],
    ['renamed', 'renamed', true, 'pays'],
  ]);
});

test.each([false, true])('E2 a tool without a name is left out (trusted server: %s)', (isTrusted) => {
  const { list, shown } = open(isTrusted);
  list(good, { key: '', raw: Buffer.from('{"description":"has no name"}') });
  expect(shown()).toEqual([['pay', 'approved', false, 'pays']]);
});

test('E2 a name that is listed twice is shown once, with the approved text', () => {
  const { list, shown } = open();
  list(good);
  list(evil, good, item('twice', 'one'), item('twice', 'two'));
  expect(shown()).toEqual([
    ['pay', 'changed', false, 'pays'],
    ['twice', 'changed', true, 'one'],
    ['twice', 'changed', true, 'two'],
  ]);
});

test('E2 a text from a list that was never compared is checked by its own hash', () => {
  const { list, shown } = open();
  list(good);
  // Such as the late answer to an earlier request, or a server card.
  const rewritten = {
    key: 'pay',
    raw: Buffer.from('{ "description":"pays", "name":"pay", "inputSchema":{"const":"pays"} }'),
  };
  expect(shown([evil])).toEqual([['pay', 'changed', false, 'pays']]);
  expect(shown([rewritten])).toEqual([['pay', 'approved', false, 'pays']]);
  expect(shown([item('other', 'unseen')])).toEqual([['other', 'new', true, 'unseen']]);
});

test('E21 the tools of a trusted server are shown as they are listed', () => {
  const { list, shown } = open(true);
  list(good);
  list(evil);
  expect(shown()).toEqual([['pay', 'approved', false, 'pays me']]);
  expect(shown([item('other', 'unseen')])).toEqual([['other', 'approved', false, 'unseen']]);
});
