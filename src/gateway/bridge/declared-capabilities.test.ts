import { expect, test } from 'vitest';
import { DeclaredCapabilities } from './client-capabilities.js';

test.each([
  ['{}', [false, false, false, false]],
  ['{"elicitation":{},"sampling":{"tools":{}},"roots":{"listChanged":true}}', [true, false, true, true]],
  ['{"elicitation":{"form":{},"url":{}}}', [true, true, false, false]],
  ['{"elicitation":{"form":{}}}', [true, false, false, false]],
  ['{"elicitation":{"url":{}}}', [false, true, false, false]],
  ['{"elicitation":true,"sampling":null,"roots":[]}', [false, false, false, false]],
  ['{"roots":{},"roots":{}}', [false, false, false, false]],
  ['[]', [false, false, false, false]],
])('%s declares [elicitation by form, by URL, sampling, roots]: %j', (text, said) => {
  const capabilities = new DeclaredCapabilities(Buffer.from(text));
  const { elicitation, elicitationUrl, sampling, roots } = capabilities;
  expect([elicitation, elicitationUrl, sampling, roots]).toEqual(said);
  expect(capabilities.raw.toString()).toBe(text === '[]' ? '{}' : text);
});
