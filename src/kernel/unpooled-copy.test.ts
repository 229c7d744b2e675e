import { expect, test } from 'vitest';
import { unpooledCopy } from './unpooled-copy.js';

test('a copy has memory of its own, of its own size', () => {
  const bytes = Buffer.from('{}');
  const copy = unpooledCopy(bytes);
  bytes.write('[]');
  expect(copy.toString()).toBe('{}');
  expect(copy.buffer.byteLength).toBe(2);
});
