import { expect, test } from 'vitest';
import { errorFrom } from './control-protocol.js';

test.each(['toString', '__proto__', 'nonsense', undefined])('E12 the code %s is not one of ours', (code) => {
  const error = errorFrom({ code, message: 'no', hint: 'none' });
  expect([error.code, error.message, error.retryable]).toEqual(['protocol_error', 'no', false]);
});
