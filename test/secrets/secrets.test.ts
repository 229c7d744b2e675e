/** Secrets by reference in a running Hostler: they reach their own server and nothing else, and are rotated without an edit. */
import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, type TestContext, test } from 'vitest';
import { type Ready, Workplace } from '../cli/hostler-process.js';
import { eventually } from '../eventually.js';
import { GuardedServer } from '../fakes/guarded-server.js';

const leaky = fileURLToPath(new URL('../fakes/leaky-server.mjs', import.meta.url));
const hashOf = (text: string) => createHash('sha256').update(text).digest('hex');
/** No shape of a known token, so only the exact value can be redacted. */
const newSecret = (name: string) => `${name} ${randomBytes(12).toString('base64')} ü"\\`;

/** A folder with a configuration, and a remote server. The tests run at the same time, so each has its own. */
async function setup({ onTestFinished }: Pick<TestContext, 'onTestFinished'>) {
  const place = new Workplace();
  const remote = await new GuardedServer('modern').start();
  onTestFinished(async () => {
    await place.remove();
    await remote.http.close();
  });
  const fileOf = (name: string) => path.join(place.folder, name);
  const put = (name: string, text: string) => writeFileSync(fileOf(name), `${text}\n`, { mode: 0o600 });
  return { place, remote, fileOf, put };
}

/** The answer to a call through the port, as text. */
async function call({ url, key }: Ready, server: string, name: string, args: Record<string, unknown> = {}) {
  const params = { name, arguments: args, _meta: meta };
  const response = await fetch(`${url}/${server}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'tools/call',
      'mcp-name': name,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
  });
  return response.text();
}

const meta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
  'io.modelcontextprotocol/clientCapabilities': {},
};

async function whoami(ready: Ready, server: string): Promise<{ hash: string; pid: number }> {
  const answer = await call(ready, server, 'whoami');
  const [, hash = answer, pid] = /\\"hash\\":\\"(\w+)\\",\\"pid\\":(\d+)/.exec(answer) ?? [];
  return { hash, pid: Number(pid) };
}

/** A program that prints a file, as a password manager would. */
function vault(program: string): string {
  writeFileSync(program, `#!/bin/sh\necho "asked for $1, unlocked by $VAULT_PIN" >&2\ncat "$1"\n`);
  chmodSync(program, 0o700);
  return program;
}

test.concurrent('AC-K3 a header from a file is rotated without a restart: one more request if it was refused, none if it was not', async (context) => {
  const { place, remote, put } = await setup(context);
  put('token', 'first-token-value');
  remote.accept('first-token-value');
  const entry = { url: remote.http.url, headers: { Authorization: `Bearer \${file:token}` } };
  place.configure({ mcpServers: { remote: entry } });
  const ready = await place.up().ready();
  const sent = async (nonce: string) => {
    const before = remote.requests;
    const answer = await call(ready, 'remote', 'write', { nonce });
    const calls = remote.http.received.slice(before).filter(({ rpcMethod }) => rpcMethod === 'tools/call');
    return { answer, tokens: calls.map(({ headers }) => headers.authorization) };
  };
  expect((await sent('a')).tokens).toEqual(['Bearer first-token-value']);
  put('token', 'second-token-value');
  remote.accept('second-token-value');
  expect((await sent('b')).tokens).toEqual(['Bearer first-token-value', 'Bearer second-token-value']);
  expect((await sent('c')).tokens).toEqual(['Bearer second-token-value']);
  // An unchanged value is not sent again.
  remote.accept('nothing');
  const { answer, tokens } = await sent('d');
  expect(tokens).toEqual(['Bearer second-token-value']);
  expect(answer).toContain('needs_reauth');
  expect(remote.executed).toEqual(['a', 'b', 'c']);
});

test.concurrent('AC-K3 a header of any name is rotated in the same way, although the server may get tokens of a login', async (context) => {
  const { place, remote, put } = await setup(context);
  put('k', 'first-key-value');
  remote.accept('first-key-value');
  const sent: unknown[] = [];
  remote.onRequest = ({ headers, rpcMethod }) => {
    if (rpcMethod === 'tools/call') sent.push(headers['x-api-key']);
    headers.authorization = `Bearer ${headers['x-api-key']}`;
    return false;
  };
  const entry = { url: remote.http.url, headers: { 'X-API-Key': `\${file:k}` } };
  place.configure({ mcpServers: { remote: entry } });
  const ready = await place.up().ready();
  expect(await call(ready, 'remote', 'write', { nonce: 'a' })).toContain('"a"');
  put('k', 'second-key-value');
  remote.accept('second-key-value');
  expect(await call(ready, 'remote', 'write', { nonce: 'b' })).toContain('"b"');
  expect(await call(ready, 'remote', 'write', { nonce: 'c' })).toContain('"c"');
  expect(sent).toEqual(['first-key-value', 'first-key-value', 'second-key-value', 'second-key-value']);
  expect(remote.executed).toEqual(['a', 'b', 'c']);
});

test.concurrent('AC-K4 after a secret in a variable was rotated only its server restarts, and no call is lost', async (context) => {
  const { place, put } = await setup(context);
  put('token', 'first-secret-value');
  const entry = { command: process.execPath, args: [leaky], env: { TOKEN: `\${file:token}` } };
  place.configure({ mcpServers: { a: entry, b: { ...entry, env: { TOKEN: 'constant-value' } } } });
  const ready = await place.up().ready();
  const [first, other] = [await whoami(ready, 'a'), await whoami(ready, 'b')];
  expect([first.hash, other.hash]).toEqual([hashOf('first-secret-value'), hashOf('constant-value')]);
  put('token', 'second-secret-value');
  const failures: string[] = [];
  const second = await eventually('it restarts', async () => {
    const answer = await call(ready, 'a', 'sleep', { ms: 20 });
    if (!answer.includes('slept')) failures.push(answer);
    const now = await whoami(ready, 'a');
    return now.pid !== first.pid && now;
  });
  expect([second.hash, failures]).toEqual([hashOf('second-secret-value'), []]);
  expect((await whoami(ready, 'b')).pid).toBe(other.pid);
});

test.concurrent('AC-K1 no secret is in a log, an error, a status, a metric, a file or the process table', async (context) => {
  const { place, remote, fileOf, put } = await setup(context);
  const values = {
    file: newSecret('file'),
    exec: newSecret('exec'),
    env: newSecret('env'),
    header: `header-${randomBytes(12).toString('base64url')}`,
    pin: newSecret('pin'),
  };
  put('token', values.file);
  put('header', values.header);
  const program = vault(fileOf('vault'));
  put('vaulted', values.exec);
  const stdio = (token: string) => ({ command: process.execPath, args: [leaky], env: { TOKEN: token } });
  place.configure({
    secrets: {
      exec: { vault: { argv: [program, fileOf('vaulted')], env: ['VAULT_PIN'] }, broken: { argv: ['false'] } },
    },
    mcpServers: {
      file: stdio(`\${file:token}`),
      exec: stdio(`\${exec:vault}`),
      env: stdio(`\${env:HOSTLER_TEST_SECRET}`),
      plain: { command: process.execPath, args: [leaky] },
      broken: stdio(`${values.pin}\${exec:broken}`),
      missing: stdio(`\${file:missing}`),
      remote: {
        url: remote.http.url,
        headers: { 'X-Key': `\${file:header}`, Authorization: `Bearer \${file:header}` },
      },
    },
  });
  process.env.HOSTLER_TEST_SECRET = values.env;
  process.env.VAULT_PIN = values.pin;
  const running = place.up();
  const ready = await running.ready();
  const { url, key, pid } = ready;
  delete process.env.HOSTLER_TEST_SECRET;
  delete process.env.VAULT_PIN;
  const sinks = new Map<string, string>();
  const hostler = async (...args: [string, ...string[]]) => {
    const { stdout, stderr } = await place.hostler(...args);
    sinks.set(args.join(' '), `${stdout}${stderr}`);
  };
  for (const name of ['file', 'exec', 'env'] as const)
    expect((await whoami(ready, name)).hash).toBe(hashOf(values[name]));
  for (const name of ['file', 'exec', 'env', 'plain', 'broken', 'missing', 'remote']) {
    for (const tool of ['leak', 'crash', 'write']) {
      const answer = await call(ready, name, tool);
      // The answer of a server to its caller is relayed unchanged, even if it contains the secret.
      if (!(name in values && tool === 'leak')) sinks.set(`call ${name} ${tool}`, answer);
    }
    await hostler('why', name, '--json');
  }
  for (const name of ['file', 'exec', 'env', 'remote']) await hostler('logs', name);
  await hostler('call', 'file', 'leak');
  await hostler('status');
  await hostler('status', '--json');
  await hostler('tools', '--json');
  await hostler('doctor', '--json', '--config', place.config);
  const headers = { authorization: `Bearer ${key}` };
  for (const route of ['metrics', 'healthz', 'readyz'])
    sinks.set(route, await (await fetch(url.replace('/mcp', `/${route}`), { headers })).text());
  for (const each of processesOf(pid)) {
    sinks.set(`arguments of ${each.pid}`, each.args);
    // Only the child that gets the secret has it.
    for (const [name, value] of Object.entries(values)) {
      // The program of the vault has the variable that it was given.
      const isGiven = each.env.includes(value) && !(name === 'pin' && each.args.includes(program));
      const owner = Object.entries(values).find(([, own]) => each.env.includes(`TOKEN=${own}`))?.[0];
      expect([each.pid, name, isGiven && owner !== name && each.pid !== pid]).toEqual([each.pid, name, false]);
    }
  }
  running.child.kill('SIGTERM');
  const { stdout, stderr } = await running.closed;
  sinks.set('log', stderr);
  sinks.set('stdout', stdout);
  for (const file of filesBelow(place.dataDir)) sinks.set(file, readFileSync(file, 'latin1'));
  const cells = [...sinks].flatMap(([sink, text]) =>
    Object.entries(values).flatMap(([name, value]) =>
      encodings(value)
        .filter((form) => text.includes(form))
        .map((form) => `${sink} has ${name} as ${form}`),
    ),
  );
  expect(cells).toEqual([]);
  // The texts were really collected, and errors name the reference.
  expect(sinks.get('call broken leak')).toContain(
    `mcpServers.broken.env.TOKEN: the command 'broken' ended with exit code 1`,
  );
  expect(sinks.get('call missing leak')).toContain('missing cannot be read (ENOENT)');
  expect(sinks.get('logs file')).toContain('starting with [REDACTED]');
  expect(sinks.size * Object.keys(values).length * 5).toBeGreaterThan(1_080);
}, 60_000);

function encodings(value: string): string[] {
  const bytes = Buffer.from(value);
  const latin = (text: string) => [text, Buffer.from(text).toString('latin1')];
  return [
    ...latin(value),
    ...latin(JSON.stringify(value).slice(1, -1)),
    encodeURIComponent(value),
    bytes.toString('base64').replace(/=+$/, ''),
    bytes.toString('base64url'),
    bytes.toString('hex'),
  ];
}

interface Process {
  readonly pid: number;
  readonly args: string;
  readonly env: string;
}

/** Hostler and the processes that it started. */
function processesOf(hostler: number): Process[] {
  const read = (pid: string, name: string) => readFileSync(`/proc/${pid}/${name}`, 'utf8');
  const parents = new Map<number, number>();
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      parents.set(
        Number(pid),
        Number(
          read(pid, 'stat')
            .replace(/^.*\) \S /s, '')
            .split(' ')[0],
        ),
      );
    } catch {
      // It has ended.
    }
  }
  const isOurs = (pid: number): boolean => pid === hostler || (parents.has(pid) && isOurs(parents.get(pid) ?? 0));
  return [...parents.keys()].filter(isOurs).flatMap((pid) => {
    try {
      return [{ pid, args: read(String(pid), 'cmdline'), env: read(String(pid), 'environ') }];
    } catch {
      return [];
    }
  });
}

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => path.join(folder, name))
    .filter((file) => statSync(file).isFile());
}
