import { expect, test } from 'vitest';
import { cacheHint, isComplete } from './cache.js';

test.each([
  ['N-C1 a ttl makes a hint, private by default', '{"content":[],"ttlMs":100}', 100, false],
  ['AC-H6 private is private', '{"ttlMs":100,"cacheScope":"private"}', 100, false],
  ['AC-H17 public is for every principal', ' { "cacheScope" : "public" , "ttlMs" : 5000 } ', 5_000, true],
  ['an unknown scope is private', '{"ttlMs":1,"cacheScope":"PUBLIC"}', 1, false],
  ['a scope that is no string is private', '{"ttlMs":1,"cacheScope":["public"]}', 1, false],
  ['a complete result is cached', '{"resultType":"complete","ttlMs":1,"isError":false}', 1, false],
  ['a whole number may be written with a point', '{"ttlMs":2e3}', 2_000, false],
])('%s', (_name, text, ttlMs, isPublic) => {
  expect(cacheHint(Buffer.from(text))).toEqual({ ttlMs, isPublic });
});

test.each([
  ['AC-H7 no hint', '{"content":[]}'],
  ['H-CCH-2 only a scope', '{"cacheScope":"public"}'],
  ['H-CCH-2 a ttl of zero', '{"ttlMs":0}'],
  ['a negative ttl', '{"ttlMs":-5}'],
  ['a ttl that is not a whole number', '{"ttlMs":1.5}'],
  ['a ttl that is a string', '{"ttlMs":"100"}'],
  ['a ttl of null', '{"ttlMs":null}'],
  ['a ttl that is an array', '{"ttlMs":[5]}'],
  ['a ttl too large for a number', '{"ttlMs":1e999}'],
  ['a ttl in a nested object', '{"structuredContent":{"ttlMs":100}}'],
  ['a ttl only in a text', '{"content":[{"type":"text","text":"\\"ttlMs\\":5"}]}'],
  ['a duplicate key', '{"ttlMs":100,"ttlMs":100}'],
  ['a duplicate key with an escape', '{"ttlMs":100,"\\u0074tlMs":5}'],
  ['an error', '{"ttlMs":100,"isError":true}'],
  ['an error with a duplicate key', '{"isError":true,"ttlMs":100,"isError":false}'],
  ['isError that is not a boolean', '{"ttlMs":100,"isError":"no"}'],
  ['the server asks for input', '{"ttlMs":100,"resultType":"input_required"}'],
  ['an unknown result type', '{"ttlMs":100,"resultType":7}'],
  ['a duplicate result type', '{"ttlMs":100,"resultType":"complete","resultType":"input_required"}'],
  ['a result that is not an object', '["ttlMs",5]'],
])('no hint: %s', (_name, text) => {
  expect(cacheHint(Buffer.from(text))).toBeUndefined();
});

test.each([
  ['{"content":[]}', true],
  ['{"resultType":"complete"}', true],
  ['{"content":[{"resultType":"input_required"}]}', true],
  ['"no object"', true],
  ['{"resultType":"input_required"}', false],
  ['{"\\u0072esultType":"input_required"}', false],
  ['{"resultType":"complete","resultType":"complete"}', false],
  ['{"resultType":null}', false],
])('whether a result is complete: %s is %s', (text, expected) => {
  expect(isComplete(Buffer.from(text))).toBe(expected);
});
