/** The pages for people say what is true: the environment of servers, the files of clients, the install command. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { clientFiles } from '../../src/cli/config/client-files.js';
import { BASELINE } from '../../src/transports/environment.js';

const read = (name: string): string => readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8');
const manifest = JSON.parse(read('package.json')) as { version: string; files: string[]; name: string };

test('docs/servers.md lists the variables that a server gets, and no others', () => {
  const rows = read('docs/servers.md').match(/^\| `.*\|$/gm) ?? [];
  const names = rows.flatMap((row) => [...row.matchAll(/`([A-Za-z_*]+)`/g)].map(([, name = '']) => name.toUpperCase()));
  const given = [...BASELINE].map((name) => name.toUpperCase());
  expect([...new Set(names)].sort()).toEqual([...new Set([...given, 'XDG_*', 'HOSTLER_RUN'])].sort());
});

test('docs/clients.md names the files that hostler alone looks for', () => {
  const page = read('docs/clients.md');
  const home = clientFiles({ HOME: '/srv/ann' }, 'linux').filter(({ client }) =>
    /Cursor|Windsurf|Zed|Cline/.test(client),
  );
  expect(home).toHaveLength(4);
  for (const { file } of home) expect(page).toContain(`\`${file.replace('/srv/ann', '~')}\``);
});

test('the install command names the file that npm pack makes, and the package has the documents', () => {
  const file = `./${manifest.name}-${manifest.version}.tgz`;
  for (const page of ['README.md', 'docs/getting-started.md'])
    expect(read(page)).toContain(`npm install --global ${file}`);
  expect(manifest.files).toContain('docs');
});
