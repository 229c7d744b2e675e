import { expect, test } from 'vitest';
import { errorFrom } from './control-protocol.js';

test.each(['toString', '__proto__', 'nonsense', undefined])('E12 %s is not a code of Hostler', (code) => {
  const error = errorFrom({ code, message: 'no', hint: 'none' });
  expect([error.code, error.message, error.retryable]).toEqual(['protocol_error', 'no', false]);
});
