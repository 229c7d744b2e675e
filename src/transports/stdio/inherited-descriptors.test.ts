import { expect, test } from 'vitest';
import { closeInheritedDescriptors } from './inherited-descriptors.js';

test('E19 a descriptor that cannot be closed neither ends the start nor leaves the next one open', () => {
  const tried: number[] = [];
  const refuse = (descriptor: number) => {
    tried.push(descriptor);
    throw Object.assign(new Error('EBADF: bad file descriptor, close'), { code: 'EBADF' });
  };
  expect(closeInheritedDescriptors([7, 8], refuse)).toBe(2);
  expect(tried).toEqual([7, 8]);
});
