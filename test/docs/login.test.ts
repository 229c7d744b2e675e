/** docs/login.md, followed command by command: its configurations and commands against real servers. */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { freePort } from '../fakes/free-port.js';
import { authorize, logIn } from '../fixtures/identity/browser.js';
import { type Hostile, startHostile } from '../fixtures/identity/hostile.js';
import { type Ended, Home } from '../identity/home.js';

const page = readFileSync(new URL('../../docs/login.md', import.meta.url), 'utf8');

interface Chapter {
  readonly configs: readonly Record<string, unknown>[];
  readonly commands: readonly (readonly string[])[];
}

function chapter(title: string): Chapter {
  const text = page.split(/^## /m).find((each) => each.startsWith(`${title}\n`)) ?? '';
  const blocks = (language: string) =>
    [...text.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, 'gm'))].map((match) => match[1] ?? '');
  const commands = blocks('console').flatMap((block) => [...block.matchAll(/^\$ hostler (.*)$/gm)]);
  return {
    configs: blocks('json').map((block) => JSON.parse(block) as Record<string, unknown>),
    commands: commands.map(([, line = '']) => line.split(' ')),
  };
}

let hostile: Hostile;
const home = new Home();
beforeAll(async () => {
  hostile = await startHostile();
});
afterAll(async () => {
  await home.end();
  await hostile.close();
});

/** The addresses of the page are examples; the servers of the test replace them. */
function use(config: Record<string, unknown>, port: number): void {
  const text = JSON.stringify({ ...config, listen: { port: 0 } })
    .replace(/https:\/\/(docs|code|jobs)\.example\/mcp/g, hostile.rs.url)
    .replace(/https:\/\/login\.\w+\.example/g, hostile.as.issuer)
    .replace('8976', String(port));
  home.write(JSON.parse(text));
}

const run = (words: readonly string[], paste = false): Promise<Ended> => {
  const [name = '', ...rest] = words;
  if (name !== 'login') return home.run(name, ...rest, ...(name === 'auth' ? ['--config', home.config] : []));
  return home.login(rest, async (url, child) => {
    if (!paste) return logIn(url);
    const { location } = await authorize(url);
    return child.stdin?.write(`${location}\n`);
  });
};

test('the commands of docs/login.md lead from "needs login" to "ready"', async () => {
  const port = await freePort();
  const byItself = chapter('A server that registers clients by itself');
  use(byItself.configs[0] ?? {}, port);
  const up = home.start(['up', '--config', home.config, '--json']);
  await eventually('hostler serves', () => up.output().includes('"ready":true'));
  await eventually('status shows the command', async () =>
    (await home.run('status')).stdout.includes('run: hostler login docs'),
  );
  const [login = [], auth = [], call = []] = byItself.commands;
  expect([login[0], auth[0], call[0]]).toEqual(['login', 'auth', 'call']);
  expect(await run(login)).toMatchObject({ code: 0, stdout: expect.stringContaining('logged in to docs') });
  expect(await run(auth)).toMatchObject({ code: 0, stdout: expect.stringContaining('granted') });
  await eventually('it is called', async () => (await run(call)).code === 0);

  const headless = chapter('A machine without a browser').commands[0] ?? [];
  expect(await run(headless, true)).toMatchObject({ code: 0, stderr: expect.stringContaining('ssh -L') });

  const ofYourOwn = chapter('A server that needs a client that you create');
  hostile.as.registration = 'none';
  home.write({ mcpServers: { code: { url: hostile.rs.url } } });
  const [needed = [], again = []] = ofYourOwn.commands;
  const told = await run(needed);
  expect([told.code, told.stderr]).toEqual([
    1,
    expect.stringMatching(/redirect URI http:\/\/127\.0\.0\.1:\d+\/callback/),
  ]);
  use(ofYourOwn.configs[0] ?? {}, port);
  writeFileSync(path.join(home.folder, 'code-secret'), 'secret-of-the-client\n');
  const redirect_uris = [`http://127.0.0.1:${port}/callback`];
  hostile.as.addClient({ client_id: 'hostler-of-ada', client_secret: 'secret-of-the-client', redirect_uris });
  expect(await run(again)).toMatchObject({ code: 0, stdout: expect.stringContaining('logged in to code') });

  const withoutPerson = chapter('A service without a person');
  use(withoutPerson.configs[0] ?? {}, port);
  writeFileSync(path.join(home.folder, 'jobs-secret'), 'secret-of-the-job');
  hostile.as.addClient({ client_id: 'nightly', client_secret: 'secret-of-the-job' });
  await eventually('the job calls without a login', async () => (await home.run('call', 'jobs', 'read')).code === 0);
});
