import { describe, expect, test } from 'vitest';
import { misdelivered } from './cross-clients.js';

describe('the checker of mixed-up answers', () => {
  const nonces = new Map([[7, 'n']]);
  const progress = (message: string, progressToken = 7) => ({
    method: 'notifications/progress',
    params: { progressToken, progress: 1, message },
  });
  const answer = (caller: string, id = 7) => ({
    id,
    result: { content: [{ type: 'text', text: `{"caller":"${caller}"}` }] },
  });

  test('accepts the client’s own messages', () => {
    expect(misdelivered('caller01', nonces, progress('caller01#n'), 7)).toBeUndefined();
    expect(misdelivered('caller01', nonces, answer('caller01'), 7)).toBeUndefined();
    expect(misdelivered('caller01', nonces, { method: 'notifications/tools/list_changed' }, undefined)).toBeUndefined();
  });

  test.each([
    ['an answer for another', answer('caller02'), 7],
    ['an answer to another request of the same client', answer('caller01', 8), 7],
    ['an answer without a request', answer('caller01'), undefined],
    ['progress of another client', progress('caller02#n'), 7],
    ['progress of another call', progress('caller01#other'), 7],
    ['progress in the answer to another request', progress('caller01#n'), 8],
    [
      'an update of a resource that another client subscribed to',
      { method: 'x', params: { uri: 'nonce://caller02' } },
      undefined,
    ],
  ])('finds %s', (_what, message, asked) => {
    expect(misdelivered('caller01', nonces, message, asked)).toMatch(/^caller01 /);
  });
});
