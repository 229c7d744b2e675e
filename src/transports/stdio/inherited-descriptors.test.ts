import { expect, test } from 'vitest';
import { closeInheritedDescriptors } from './inherited-descriptors.js';

test('E19 a descriptor that cannot be closed does not fail the start, and the next descriptors are still closed', () => {
  const tried: number[] = [];
  const refuse = (descriptor: number) => {
    tried.push(descriptor);
    throw Object.assign(new Error('EBADF: bad file descriptor, close'), { code: 'EBADF' });
  };
  expect(closeInheritedDescriptors([7, 8], refuse)).toBe(2);
  expect(tried).toEqual([7, 8]);
});
