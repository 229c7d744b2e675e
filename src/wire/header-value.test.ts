import { expect, test } from 'vitest';
import { decodeHeaderValue, encodeHeaderValue } from './header-value.js';

test.each([
  ['search', 'search'],
  ['with space', 'with space'],
  ['file:///tmp/a%20b', 'file:///tmp/a%20b'],
  ['', ''],
  [' lead', '=?base64?IGxlYWQ=?='],
  ['trail ', '=?base64?dHJhaWwg?='],
  ['\t', '=?base64?CQ==?='],
  ['a\tb', '=?base64?YQli?='],
  ['line\r\nbreak', '=?base64?bGluZQ0KYnJlYWs=?='],
  ['grüß', '=?base64?Z3LDvMOf?='],
  ['日本', '=?base64?5pel5pys?='],
  ['\u007f', '=?base64?fw==?='],
  ['=?base64?YQ==?=', '=?base64?PT9iYXNlNjQ/WVE9PT89?='],
  ['=?base64?', '=?base64?'],
])('%j is encoded as %j, and decoded again', (plain, encoded) => {
  expect(encodeHeaderValue(plain)).toBe(encoded);
  expect(encoded).toMatch(/^[\x20-\x7e]*$/);
  expect(decodeHeaderValue(encoded)).toBe(plain);
});

test.each([
  ['padding left out', '=?base64?YQ?='],
  ['padding too much', '=?base64?YWE==?='],
  ['padding bits that are not zero', '=?base64?YR==?='],
  ['the other alphabet', '=?base64?-_-_?='],
  ['space inside', '=?base64?YQ ==?='],
  ['bytes that are no UTF-8', '=?base64?/w==?='],
  ['another case of the marker', '=?BASE64?YQ==?='],
  ['bytes above ASCII', 'gr\u00fc\u00df'],
  ['a tab', 'a\tb'],
])('%s gives no value', (_name, encoded) => {
  expect(decodeHeaderValue(encoded)).toBeUndefined();
});
