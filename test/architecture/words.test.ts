/** Words about the machine and the tools with which a text was written, and switches that leave tests out. */
import { describe, expect, test } from 'vitest';
import { filesBelow, readText } from './tree.js';

// Names are joined from parts, so that this file may contain them.
const any = (...names: string[]): string => `(?:${names.join('|')})`;
const folder = (name: string): string => `/${name}/`;
const word = (...parts: string[]): string => parts.join('');

const rules: ReadonlyArray<{ what: string; pattern: RegExp; only?: RegExp }> = [
  {
    what: 'a path of one machine',
    // Not after a letter or a dot: docs/work/ and ./work/ are relative.
    pattern: new RegExp(
      `(?<![\\w.~}])${any(folder('work'), folder('root'), `${folder('home')}[a-z]`, `${folder('Users')}[A-Za-z]`)}`,
    ),
  },
  { what: 'a word about the tools of its authors', pattern: new RegExp(word('sub', '-?agent'), 'i') },
  {
    what: 'the host of a package registry',
    pattern: new RegExp(any(word('registry', '\\.npmjs'), word('registry', '\\.yarnpkg'), word('npm', '\\.pkg\\.'))),
  },
  {
    what: 'a test left out or run alone',
    pattern: new RegExp(`\\b${any('it', 'test', 'describe')}\\.${word('on', 'ly')}\\b|\\.${word('sk', 'ip')}\\(`),
    only: /\.(test|long)\.ts$|^test\//,
  },
];

function findings(file: string, text: string): string[] {
  return rules
    .filter(({ only }) => only?.test(file) ?? true)
    .flatMap(({ what, pattern }) =>
      text.split('\n').flatMap((line, at) => (pattern.test(line) ? [`${file}:${at + 1}: ${what}`] : [])),
    );
}

const binary = /\.(png|jpg|ico|gz|tgz|db|wasm)$/;

describe('our files', () => {
  const files = filesBelow('.').filter((file) => !binary.test(file));
  test('were found', () => {
    expect(files).toEqual(expect.arrayContaining(['package.json', '.ci/run', 'src/kernel/errors.ts']));
  });
  test('contain none of the words', () => {
    expect(files.flatMap((file) => findings(file, readText(file)))).toEqual([]);
  });
});

describe('the checker', () => {
  test.each([
    [`cd ${folder('work')}main`, 'a path of one machine'],
    [`"${folder('root')}.config"`, 'a path of one machine'],
    [`${folder('home')}someone`, 'a path of one machine'],
    [word('Sub', 'agents'), 'a word about the tools of its authors'],
    [`https://${word('registry', '.npmjs')}.org`, 'the host of a package registry'],
    [`test.${word('on', 'ly')}('x')`, 'a test left out or run alone'],
    [`describe.${word('sk', 'ip')}('x')`, 'a test left out or run alone'],
  ])('finds %s', (text, what) => {
    expect(findings('src/a.test.ts', text)).toEqual([`src/a.test.ts:1: ${what}`]);
  });

  test.each(['./work/x', 'docs/root/x', '/home/', 'readonly', 'test.skipIf(x)', `queue.${word('sk', 'ip')}(1)`])(
    'leaves %s alone',
    (text) => {
      expect(findings('src/a.ts', text)).toEqual([]);
    },
  );
});
