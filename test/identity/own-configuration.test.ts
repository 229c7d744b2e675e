/** A fault in the user's own configuration locks the tokens, and nothing else: hosts of other configurations serve. */
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { logIn } from '../fixtures/identity/browser.js';
import { startHostile } from '../fixtures/identity/hostile.js';
import { Home } from './home.js';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

const plainServer = fileURLToPath(new URL('../fakes/ledger-server.pl', import.meta.url));

test.each([
  ['an unset variable', JSON.stringify({ identity: { key: `\${env:HOSTLER_NOT_SET}` } }), 'HOSTLER_NOT_SET'],
  ['a wrong type', JSON.stringify({ identity: { dir: 7 } }), 'identity.dir'],
  ['no JSON', '{"mcpServers": {', 'hostler.json'],
])(
  'AC-A24 %s in it: servers without a login are served; calls to the others fail with the reason',
  async (_what, text, why) => {
    const { rs, close } = await startHostile();
    const home = new Home();
    ends.push(close, () => home.end());
    const plain = { command: 'perl', args: [plainServer], env: { LEDGER: path.join(home.folder, 'ledger') } };
    home.write({ listen: { port: 0 }, mcpServers: { plain, docs: { url: rs.url } } });
    home.putOwnConfig(text);
    const up = home.start(['up', '--config', home.config, '--json']);
    await eventually('hostler serves', () => up.output().includes('"ready":true') || up.child.exitCode !== null);
    expect([up.output(), up.child.exitCode]).toEqual([expect.stringContaining('"ready":true'), null]);
    expect((await home.run('tools', 'plain')).code).toBe(0);
    const call = await home.run('call', 'docs', 'read', '{}');
    expect([call.code, call.stderr]).toEqual([4, expect.stringContaining(why)]);
    const rows = (
      JSON.parse((await home.run('status', '--json')).stdout) as { servers: { name: string; auth?: object }[] }
    ).servers;
    expect(rows.find(({ name }) => name === 'docs')?.auth).toMatchObject({
      state: 'locked',
      lastError: { reason: 'store_locked' },
      next: expect.any(String),
    });
    expect((await home.run('doctor', '--config', home.config)).stdout).toContain(why);
    const login = await home.run('login', 'docs', '--config', home.config);
    expect([login.code, login.stderr]).toEqual([1, expect.stringContaining(why)]);
  },
);

test('AC-K1 doctor says that a crash may write tokens to a core file, unless the limit forbids such files', async () => {
  const { rs, close } = await startHostile();
  const home = new Home();
  ends.push(close, () => home.end());
  home.write({ mcpServers: { docs: { url: rs.url } } });
  expect((await home.login(['docs', '--no-browser'], (url) => logIn(url))).code).toBe(0);
  const doctor = async (limit: string) => {
    const line = `ulimit -Sc ${limit}; exec '${process.execPath}' '${path.resolve('dist/cli/main.cjs')}' doctor --config '${home.config}'`;
    return (await home.start(['-c', line], undefined, 'sh').ended).stdout;
  };
  expect(await doctor('"$(ulimit -Hc)"')).toMatch(
    /core files: a crash may write a file with the tokens in memory\n.*LimitCORE=0/,
  );
  expect(await doctor('0')).not.toContain('core files');
});
