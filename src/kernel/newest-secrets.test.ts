import { expect, test } from 'vitest';
import { NewestSecrets } from './newest-secrets.js';

test('X15 the newest values are redacted, and a value that is added again becomes the newest', () => {
  const known = new Set<string>();
  const secrets = new NewestSecrets({ know: (each) => known.add(each), forget: (each) => known.delete(each) }, 3);
  for (const value of ['a', 'a', 'b', 'c', 'a', 'd']) secrets.add(value);
  expect([...known].sort()).toEqual(['a', 'c', 'd']);
});
