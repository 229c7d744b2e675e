import { describe, expect, test } from 'vitest';
import { judge, parseExpected } from './verdict.mjs';

interface Judged {
  readonly unexpected: readonly { readonly id: string; readonly why: string }[];
}

const ok = { id: 'a', status: 'SUCCESS' };
const bad = { id: 'b', status: 'FAILURE', errorMessage: 'no' };

describe('expected failures', () => {
  test('are read cell by cell, each with its reason', () => {
    const cells = parseExpected('# words\nstdio 2026:\n  server:\n    - one # because\n    - two:check # of that\n');
    expect(cells.get('stdio 2026')?.server).toEqual([
      { scenario: 'one', check: undefined, why: 'because' },
      { scenario: 'two', check: 'check', why: 'of that' },
    ]);
  });

  test.each(['x:\n  server:\n    - one\n', '    - one # why\n', 'x:\n  other:\n', 'x:\nx:\n'])('refuses %j', (text) => {
    expect(() => parseExpected(text)).toThrow(/expected-failures.yml:\d/);
  });
});

describe('a verdict', () => {
  test('counts passed checks, and treats a warning as a failure', () => {
    const found = new Map([
      ['one', [ok]],
      ['two', [ok, { id: 'c', status: 'WARNING' }]],
    ]);
    expect(judge(found, ['one', 'two'], [])).toMatchObject({ passed: 1, total: 2, judged: [{}, { passed: false }] });
  });

  test('names unexpected failures, and checks that did not run', () => {
    const { judged } = judge(new Map([['one', [ok, bad]]]), ['one', 'two'], []);
    expect(judged.flatMap(({ unexpected }: Judged) => unexpected)).toEqual([
      { id: 'b', why: 'no' },
      { id: 'two', why: 'was not run' },
    ]);
  });

  test('accepts an expected failure of one check, and no other of that scenario', () => {
    const entry = { scenario: 'one', check: 'b', why: 'because' };
    const found = new Map([['one', [bad, { ...bad, id: 'c' }]]]);
    expect(judge(found, ['one'], [entry]).judged[0]?.unexpected.map(({ id }: { id: string }) => id)).toEqual(['c']);
  });

  test('treats two expectations as met by one failure', () => {
    const entries = [undefined, 'b'].map((check) => ({ scenario: 'one', check, why: 'because' }));
    expect(judge(new Map([['one', [bad]]]), ['one'], entries).stale).toEqual([]);
  });

  test('reports an expectation without a failure as stale, if its scenario ran', () => {
    const entries = ['one', 'other'].map((scenario) => ({ scenario, check: undefined, why: 'because' }));
    expect(judge(new Map([['one', [ok]]]), ['one'], entries).stale).toEqual([entries[0]]);
  });
});
