import { expect, test } from 'vitest';
import { deadLettersTable } from './dead-letters.js';

test('what senders wrote is shown as one line that moves no cursor, in every cell', () => {
  const evil = 'a\u001b[2J\r\nb\u009b';
  const table = deadLettersTable([
    { seq: 1, id: evil, from: { mailbox: evil, role: undefined }, to: evil, reasons: [evil, evil] },
  ]);
  expect(table.split('\n')).toHaveLength(2);
  expect(table.replace('\n', '')).not.toMatch(/\p{Cc}/u);
  expect(table).toContain('[2J');
});
