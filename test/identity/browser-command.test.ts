/** AC-A8: a whole login on a terminal with a display, where `xdg-open` is a program that records how it was started. */
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { logIn } from '../fixtures/identity/browser.js';
import { startHostile } from '../fixtures/identity/hostile.js';
import { Home } from './home.js';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function world() {
  const hostile = await startHostile();
  const home = new Home();
  ends.push(
    () => hostile.close(),
    () => home.end(),
  );
  const bin = path.join(home.folder, 'bin');
  const record = path.join(home.folder, 'started');
  mkdirSync(bin);
  writeFileSync(path.join(bin, 'xdg-open'), `#!/bin/sh\nprintf '%s\\0' "$#" "$@" >> '${record}'\n`);
  chmodSync(path.join(bin, 'xdg-open'), 0o755);
  Object.assign(home.env, { PATH: `${bin}:${process.env.PATH}`, DISPLAY: ':0' });
  home.write({ mcpServers: { docs: { url: hostile.rs.url } } });
  const started = () => (existsSync(record) ? readFileSync(record, 'latin1').split('\0').slice(0, -1) : []);
  return { ...hostile, home, started };
}

test('AC-A8 the browser gets one argument, even if the address contains shell commands, and nothing else is started', async () => {
  const { as, home, started } = await world();
  const planted = `x=$(touch\${IFS}started-by-shell)&y=\`id\`&z='";id;'&--flag`;
  as.editMetadata = (metadata) => ({ ...metadata, authorization_endpoint: `${as.issuer}/authorize?${planted}` });
  const login = home.startOnTerminal(['login', 'docs', '--config', home.config]);
  const [count, url = ''] = await eventually('the browser is started', () => started().length >= 2 && started());
  expect([count, started().length]).toEqual(['1', 2]);
  expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/authorize\?x=%24%28touch[!-~]+$/);
  await logIn(url);
  expect(await login.ended).toMatchObject({ code: 0, stdout: expect.stringContaining('logged in to docs') });
  expect([started().length, existsSync(path.join(home.folder, 'started-by-shell'))]).toEqual([2, false]);
  // AC-K1: other users may read `state` on the command line of the browser. After the login, `state` is worth nothing.
  const { searchParams } = new URL(url);
  const replay = `${searchParams.get('redirect_uri')}?code=planted&state=${searchParams.get('state')}`;
  await expect(fetch(replay)).rejects.toThrow();
});

test('AC-A8 for a refused address nothing is started', async () => {
  const { as, home, started } = await world();
  const hostile = [
    ...['javascript:alert(1)', 'file:///etc/passwd', 'data:text/html,x', '--flag', 'http://evil.example/authorize'],
    ...['https://user:password@evil.example/', 'smb://evil.example/x', `https://evil.example/${'x'.repeat(9_000)}`],
  ];
  for (const address of hostile) {
    as.editMetadata = (metadata) => ({ ...metadata, authorization_endpoint: address });
    // The operator names the issuer, so the login page of the issuer may be anywhere.
    const login = home.startOnTerminal(['login', 'docs', '--issuer', as.issuer, '--config', home.config]);
    const { code, stdout } = await login.ended;
    expect([address.slice(0, 50), code, stdout]).toEqual([
      address.slice(0, 50),
      1,
      expect.stringContaining('login page'),
    ]);
  }
  expect(started()).toEqual([]);
}, 60_000);
