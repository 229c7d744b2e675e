import { describe, expect, test } from 'vitest';
import { matchesTemplate, parseTemplate } from './uri-templates.js';

const matches = (template: string, uri: string): boolean => {
  const parsed = parseTemplate(template);
  return parsed !== undefined && matchesTemplate(parsed, uri);
};

describe('a URI and a template', () => {
  test.each([
    ['test://template/{id}/data', 'test://template/7/data', true],
    ['test://template/{id}/data', 'test://template/7/8/data', false],
    ['test://template/{id}/data', 'test://template/7/data/x', false],
    ['file:///{+path}', 'file:///a/b/c', true],
    ['file:///{path}', 'file:///a/b/c', false],
    ['x://{a}-{b}', 'x://1-2-3', true],
    ['x://{a}{b}/c', 'x://12/c', true],
    ['x://q{?a,b}', 'x://q?a=1&b=2', true],
    ['x://plain', 'x://plain', true],
    ['x://plain', 'x://plainer', false],
    ['x://{broken', 'x://1', false],
    ['x://{}', 'x://1', false],
    ['x://}', 'x://}', false],
  ])('%s and %s: %s', (template, uri, expected) => {
    expect(matches(template, uri)).toBe(expected);
  });

  test('what is larger than anybody needs is no match', () => {
    expect(parseTemplate(`x://${'{a}'.repeat(33)}`)).toBeUndefined();
    expect(parseTemplate(`x://${'a'.repeat(2_048)}`)).toBeUndefined();
    expect(matches('x://{+a}', `x://${'a'.repeat(8_192)}`)).toBe(false);
  });

  test('a template that makes others backtrack for ever costs no more than its length', () => {
    expect(matches(`x://${'{+a}'.repeat(32)}!`, `x://${'a'.repeat(8_000)}`)).toBe(false);
  });
});
