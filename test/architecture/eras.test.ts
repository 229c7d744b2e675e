/**
 * Differences between protocol revisions are in the folders of the eras only. The compiler requires every fact of a new era and of a
 * new method.
 */
import { expect, test } from 'vitest';
import type { ClientEra } from '../../src/gateway/eras/era.js';
import { ERAS as CLIENT_ERAS } from '../../src/gateway/eras/eras.js';
import { ERAS as SERVER_ERAS } from '../../src/session/eras/eras.js';
import type { ServerEra } from '../../src/session/eras/server-era.js';
import type { Method } from '../../src/wire/methods.js';
import { eraNameErrors } from './era-rules.js';
import { filesBelow, readText } from './tree.js';

const names = SERVER_ERAS.map(({ name }) => name);

test('clients and servers have the same eras, in the same order', () => {
  expect(CLIENT_ERAS.map(({ name }) => name)).toEqual(names);
});

test('only code in the folders of the eras names an era', () => {
  const files = filesBelow('src').filter((file) => file.endsWith('.ts'));
  expect(eraNameErrors(Object.fromEntries(files.map((file) => [file, readText(file)])), names)).toEqual([]);
});

test.each([
  ["if (era === 'modern') a();", 1],
  ["const era = isNew ? 'modern' : 'legacy';", 2],
  ['const era = `legacy`;', 1],
  ["type Kind = 'legacy' | 'other';", 1],
  ["// 'modern'\nconst text = 'a modern server';", 0],
])('the checker finds the names in %s: %i', (text, count) => {
  expect(eraNameErrors({ 'src/host/a.ts': text }, names)).toHaveLength(count);
  expect(eraNameErrors({ 'src/host/eras/old/a.ts': text, 'src/host/a.test.ts': text }, names)).toEqual([]);
});

/** The names of the optional members of a type. */
type Optional<T> = { [Key in keyof T]-?: object extends Pick<T, Key> ? Key : never }[keyof T];

test('an era states every fact: only hooks are optional, in the type that tsc checks', () => {
  const serverHooks: Record<Optional<ServerEra>, true> = { entered: true, newMirror: true };
  const clientHooks: Record<Optional<ClientEra>, true> = {};
  expect(Object.keys({ ...serverHooks, ...clientHooks })).toEqual(['entered', 'newMirror']);
});

test('a forwarded method states its target, in the type that tsc checks', () => {
  const whole: Method = { handledBy: 'passthrough', target: 'prompt' };
  // @ts-expect-error: without a target the gateway could not find the server.
  const half: Method = { handledBy: 'passthrough', nameMember: 'name' };
  expect(Object.keys({ ...whole, ...half })).toContain('target');
});
