/** docs/errors.md lists every error and log text. `UPDATE=1 npx vitest run test/docs/errors.test.ts` generates the page. */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { ERRORS, type ErrorCode } from '../../src/kernel/errors.js';
import { filesBelow, readText } from '../architecture/tree.js';
import { errorTexts, logTexts } from './error-texts.js';

const page = fileURLToPath(new URL('../../docs/errors.md', import.meta.url));
const sourcesBelow = (folder: string) =>
  Object.fromEntries(
    filesBelow(folder)
      .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'))
      .map((file) => [file, readText(file)]),
  );

const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll('\n', ' ');

function rendered(): string {
  const errors = errorTexts(sourcesBelow('src'));
  const codes = Object.keys(ERRORS) as ErrorCode[];
  const sections = codes.map((code) => {
    const { http, rpc, retry } = ERRORS[code];
    const rows = errors
      .filter((error) => error.code === code)
      .map(({ text, hint }) => `| ${cell(text)} | ${cell(hint) || '-'} |`);
    return [
      `## ${code}`,
      '',
      `HTTP ${http}, JSON-RPC ${rpc}, retry: ${retry}.`,
      '',
      ...(rows.length === 0 ? ['Texts come from the server.'] : ['| text | what to do |', '| --- | --- |', ...rows]),
      '',
    ].join('\n');
  });
  const logs = logTexts(sourcesBelow('src/cli')).map(({ level, text }) => `| ${level} | ${cell(text)} |`);
  return [
    '# Errors and log lines',
    '',
    'Generated from the sources by `test/docs/errors.test.ts`. `<name>` stands for a value, `[...]` for a part that may be missing.',
    'Programs branch on the code, never on the text.',
    '',
    ...sections,
    '## Log lines',
    '',
    '| level | text |',
    '| --- | --- |',
    ...logs,
    '',
  ].join('\n');
}

test('docs/errors.md lists every error and log text', () => {
  const wanted = rendered();
  if (process.env.UPDATE) writeFileSync(page, wanted);
  expect(readFileSync(page, 'utf8')).toBe(wanted);
});

test('errors are found where they are created, and through functions that build them', () => {
  const source = `
    const invalid = (field: string, what: string, hint = 'correct it') => new HostError('invalid_spec', \`\${field}: \${what}\`, { hint });
    throw new HostError('denied', \`role '\${role}' may not\${tool ? \` use \${tool}\` : ''}\`, { hint: 'ask' });
    throw invalid('--port', \`\${given} is not a port\`);`;
  expect(errorTexts({ 'a.ts': source })).toEqual([
    { code: 'denied', text: "role '<role>' may not[ use <tool>]", hint: 'ask' },
    { code: 'invalid_spec', text: '--port: <given> is not a port', hint: 'correct it' },
  ]);
});

test('notExecuted is read like new HostError, also through a function that builds the error', () => {
  const source = `
    const about = (tool: string, what: string, hint?: string) => notExecuted('tool_not_found', \`\${what} \${tool}\`, hint, { tool });
    throw notExecuted('denied', \`role '\${role}' may not\`, role ? 'ask' : undefined, { role });
    throw about('x', 'there is no tool', 'list the tools again');
    throw about('y', 'there is a tool');`;
  expect(errorTexts({ 'a.ts': source })).toEqual([
    { code: 'denied', text: "role '<role>' may not", hint: '' },
    { code: 'denied', text: "role '<role>' may not", hint: 'ask' },
    { code: 'tool_not_found', text: 'there is a tool y', hint: '' },
    { code: 'tool_not_found', text: 'there is no tool x', hint: 'list the tools again' },
  ]);
});

test('a number is computed from constants', () => {
  const source = `
    const openMs = 15_000;
    throw new HostError('timeout', \`within \${openMs / 1_000} s\`, { hint: \`wait \${waitMs / 1_000} s, \${'a ' + 'b'}\` });`;
  expect(errorTexts({ 'a.ts': source })).toEqual([
    { code: 'timeout', text: 'within 15 s', hint: 'wait <number> s, a b' },
  ]);
});

test('a hint belongs to its text: one condition decides both, and a constant counts only where it is visible', () => {
  const source = `
    const full = (isDisk: boolean) =>
      new HostError('overloaded', isDisk ? 'the disk is full' : 'memory is full', { hint: isDisk ? 'free some space' : 'wait' });
    function other() { const hint = 'never shown'; return hint; }
    const invalid = (what: string, hint: string) => new HostError('invalid_spec', what, { hint });
    const noFile = (why: string) => invalid(\`the file \${why}\`, 'name another file');
    throw noFile('does not exist');`;
  expect(errorTexts({ 'a.ts': source })).toEqual([
    { code: 'invalid_spec', text: 'the file does not exist', hint: 'name another file' },
    { code: 'overloaded', text: 'memory is full', hint: 'wait' },
    { code: 'overloaded', text: 'the disk is full', hint: 'free some space' },
  ]);
});
