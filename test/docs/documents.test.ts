/**
 * Runs the commands and programs of the documents, and checks that their links lead to files.
 */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../../', import.meta.url));
const { scripts } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
  scripts: Record<string, string>;
};

function markdownFiles(folder = ''): string[] {
  return readdirSync(path.join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const name = path.join(folder, entry.name);
    if (entry.isDirectory()) return ['node_modules', '.git', 'dist'].includes(entry.name) ? [] : markdownFiles(name);
    return entry.name.endsWith('.md') ? [name] : [];
  });
}

const documents = markdownFiles().map((name) => ({ name, text: readFileSync(path.join(root, name), 'utf8') }));

const blocks = (text: string, language: string): string[] =>
  [...text.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, 'gm'))].map((match) => match[1] as string);

const commands = documents.flatMap(({ name, text }) =>
  blocks(text, 'sh').flatMap((block) =>
    block
      .split('\n')
      .map((line) => line.replace(/\s+#.*$/, '').trim())
      .filter(Boolean)
      .map((command) => ({ name, command })),
  ),
);

describe('every command in the documents', () => {
  test('is of a kind that this test checks', () => {
    expect(commands.length).toBeGreaterThan(3);
    expect(commands.filter(({ command }) => !/^(npm (start|test|run)|hostler )/.test(command))).toEqual([]);
  });

  test.each(commands.filter(({ command }) => command.startsWith('npm ')))(
    '$name: $command names a script that exists',
    ({ command }) => {
      const [, script, rest] = /^npm (?:run )?([\w:]+)(?: -- (\S+))?/.exec(command) ?? [];
      expect(Object.keys(scripts)).toContain(script);
      if (script === 'bench' && rest) expect(existsSync(path.join(root, 'bench', `${rest}.bench.mjs`))).toBe(true);
      if (script === 'test:long' && rest)
        expect(existsSync(path.join(root, 'test/long', `${rest}.long.ts`))).toBe(true);
    },
  );

  test.each(commands.filter(({ command }) => command.startsWith('hostler ')))(
    '$name: $command works',
    { timeout: 60_000 },
    async ({ command }) => {
      const args = command.split(/\s+/).slice(1);
      const { stdout } = await run(process.execPath, [path.join(root, 'dist/cli/main.js'), ...args], { cwd: root });
      expect(stdout).not.toBe('');
    },
  );
});

describe('every TypeScript snippet in the README', () => {
  const folder = path.join(root, '.docs-check');
  test.each(
    blocks(documents.find(({ name }) => name === 'README.md')?.text ?? '', 'ts').map((code, i) => [i, code] as const),
  )('number %i runs unchanged', { timeout: 60_000 }, async (i, code) => {
    mkdirSync(folder, { recursive: true });
    try {
      const file = path.join(folder, `snippet-${i}.mjs`);
      writeFileSync(file, code);
      const { stdout } = await run(process.execPath, [file], { cwd: root });
      expect(stdout).toContain('read_graph');
      expect(stdout).toContain('result {');
      expect(stdout).toContain("state: 'ready'");
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});

test('E23 the program of docs/embedding.md that attaches servers runs unchanged', { timeout: 60_000 }, async () => {
  const { text } = documents.find(({ name }) => name === 'docs/embedding.md') ?? { text: '' };
  const code = blocks(text, 'ts').find((block) => block.includes('host.attach(')) ?? '';
  const folder = path.join(root, '.docs-check');
  mkdirSync(folder, { recursive: true });
  try {
    writeFileSync(path.join(folder, 'program.mjs'), code);
    const { stdout } = await run(process.execPath, [path.join(folder, 'program.mjs')], { cwd: root });
    expect(stdout).toContain("text: 'rolled'");
    expect(stdout).toContain("{ name: 'clock', state: 'ready', transport: 'attached', pid: null }");
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

/** True if the target of a link exists. An empty file counts as missing. */
const hasTarget = (file: string) => existsSync(file) && statSync(file).size > 0;

test('every link within the project leads to a file', () => {
  const dead = documents.flatMap(({ name, text }) =>
    [...text.matchAll(/\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)/g)]
      .map((match) => match[1] as string)
      .filter((link) => !hasTarget(path.join(root, path.dirname(name), link)))
      .map((link) => `${name} → ${link}`),
  );
  expect(dead).toEqual([]);
});

test('every source file that the guides name exists', () => {
  const missing = documents
    .filter(({ name }) => ['ARCHITECTURE.md', 'CONTRIBUTING.md'].includes(name))
    .flatMap(({ text }) => [...text.matchAll(/`((?:[\w-]+\/)+[\w-]+\.ts)`/g)].map((match) => match[1] as string))
    .filter((file) => ![file, `src/${file}`].some((place) => existsSync(path.join(root, place))));
  expect(missing).toEqual([]);
});
