/**
 * Plain technical English: a sentence names its subject instead of "whoever" or "nobody", and does not begin with "Of a" or "Who".
 * Checked in sources (comments, messages and names), titles of tests, documents, and the descriptions of configuration keys.
 */
import { describe, expect, test } from 'vitest';
import { parseAst } from 'vitest/node';
import { filesBelow, readText } from './tree.js';

type Node = Record<string, unknown> & { type: string };

const vague = /\b(?:who|no|some)(?:ever|body)\b|\bwhom\b/gi;
/** At the start of a line, a comment or a text, or after the end of a sentence. */
const opening = /(?:^[\s*/|>-]*|\/\*\* |\/\/ |[.;:] |['"`(])(?:Of (?:a|the) |Who )/gm;

const findings = (text: string): string[] =>
  [...text.matchAll(vague), ...text.matchAll(opening)].map(([found]) => found.trim());

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string';

function* nodesOf(node: Node): Generator<Node> {
  yield node;
  for (const value of Object.values(node))
    for (const each of Array.isArray(value) ? value : [value]) if (isNode(each)) yield* nodesOf(each);
}

/** `test(…)`, `test.each(…)(…)` and the same with describe. */
function isTestFunction(callee: unknown): boolean {
  if (!isNode(callee)) return false;
  if (callee.type === 'Identifier') return /^(?:test|describe|it)$/.test(String(callee.name));
  return isTestFunction(callee.type === 'CallExpression' ? callee.callee : callee.object);
}

function titlesIn(text: string): string[] {
  return [...nodesOf(parseAst(text, { lang: 'ts' }) as unknown as Node)].flatMap((node) => {
    if (node.type !== 'CallExpression' || !isTestFunction(node.callee)) return [];
    const [title] = node.arguments as Node[];
    if (title?.type === 'Literal') return [String(title.value)];
    return title?.type === 'TemplateLiteral' ? [JSON.stringify(title.quasis)] : [];
  });
}

const isTest = (file: string): boolean => /\.(?:test|long)\.ts$/.test(file);
/** CONTRIBUTING quotes this rule; ADR 7 is a record of its time. */
const allowed: ReadonlySet<string> = new Set(['CONTRIBUTING.md', 'docs/adr/0007-broker-and-workers.md']);

const files = [
  ...[...filesBelow('src'), ...filesBelow('test')].filter((file) => file.endsWith('.ts')),
  ...filesBelow('docs').filter((file) => file.endsWith('.md')),
  ...filesBelow('scripts'),
  ...['README.md', 'ARCHITECTURE.md', 'hostler.schema.json'],
].filter((file) => !allowed.has(file) && (!file.startsWith('test/') || isTest(file)));

/** The top folder of a file. Its sentences are checked in one test. */
const folderOf = (file: string): string => (file.includes('/') ? (file.split('/')[0] as string) : '.');

describe('sentences with a vague subject', () => {
  const found = files.flatMap((file) => {
    const text = readText(file);
    return (isTest(file) ? titlesIn(text) : [text]).flatMap(findings).map((word) => ({ file, word }));
  });
  test.each([...new Set(files.map(folderOf))].sort())('in %s', (folder) => {
    const own = found.filter(({ file }) => folderOf(file) === folder).map(({ file, word }) => `${file}: ${word}`);
    expect(own).toEqual([]);
  });
});

describe('the checker', () => {
  test.each([
    ['// Whoever asks gets it.', ['Whoever']],
    ['/** Nobody listens, and somebody is told whom. */', ['Nobody', 'somebody', 'whom']],
    ['/** Of a server that is gone. */', ['/** Of a']],
    [' * Who has the key.', ['* Who']],
    ['It ends. Of the rest nothing is known.', ['. Of the']],
    ['| Who may call |', ['| Who']],
    ['the owner of a key, which says who it is', []],
  ])('%s', (text, words) => {
    expect(findings(text)).toEqual(words);
  });
});
