import { mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { homeFolderName, prepareHome, sandboxAmbient } from './private-home.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-homes-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

test('two names never share a folder, and no name leads out of the parent folder', () => {
  const names = [
    'a',
    'A',
    'a.b',
    'a..b',
    '..',
    '.',
    '',
    'a/b',
    '../a',
    'a\0',
    '%61',
    'ä',
    'x'.repeat(64),
    'x'.repeat(65),
  ];
  const folders = names.map(homeFolderName);
  expect(new Set(folders).size).toBe(names.length);
  for (const name of folders) expect(name).toMatch(/^[A-Za-z0-9%][A-Za-z0-9_.-]{0,64}$/);
});

test('a home is made once, for its user only', async () => {
  const home = await prepareHome(path.join(folder, 'homes'), 'docs');
  expect(home).toBe(path.join(folder, 'homes', 'docs', 'home'));
  expect(statSync(home).mode & 0o777).toBe(0o700);
  expect(await prepareHome(path.join(folder, 'homes'), 'docs')).toBe(home);
});

test('a link instead of a home is refused', async () => {
  mkdirSync(path.join(folder, 'docs'));
  symlinkSync('/usr', path.join(folder, 'docs', 'home'));
  await expect(prepareHome(folder, 'docs')).rejects.toMatchObject({
    code: 'connect_failed',
    details: { reason: 'sandbox_home', server: 'docs' },
  });
});

test('folders of the session are replaced by folders of the sandbox', () => {
  const ambient = { PATH: '/p', HOME: '/h', TMPDIR: '/t', XDG_RUNTIME_DIR: '/r', XDG_CACHE_HOME: '/c' };
  expect(sandboxAmbient(ambient)).toEqual({
    PATH: '/p',
    HOME: '/sandbox/home',
    TMPDIR: '/tmp',
    XDG_CACHE_HOME: '/sandbox/home/.cache',
    XDG_CONFIG_HOME: '/sandbox/home/.config',
    XDG_DATA_HOME: '/sandbox/home/.local/share',
    XDG_STATE_HOME: '/sandbox/home/.local/state',
  });
});

test('variables that name certificate authorities of the system are passed on, others are removed', () => {
  const ambient = { SSL_CERT_FILE: '/etc/ssl/cert.pem', NODE_EXTRA_CA_CERTS: '/opt/ca.pem' };
  const { SSL_CERT_FILE, NODE_EXTRA_CA_CERTS } = sandboxAmbient(ambient);
  expect([SSL_CERT_FILE, NODE_EXTRA_CA_CERTS]).toEqual(['/etc/ssl/cert.pem', undefined]);
});
