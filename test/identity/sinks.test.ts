/**
 * AC-K1 and AC-K9: logins, calls and refreshes with hostile servers that repeat what they were sent. No secret is in any of the 18 places
 * to which Hostler writes text, in five encodings.
 */
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import * as otel from '@opentelemetry/api';
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { afterEach, expect, test } from 'vitest';
import { jsonSchemaOf, jsonShapes } from '../../src/cli/json-shapes.js';
import { createHost, type Host, type HostConfig } from '../../src/index.js';
import { eventually } from '../eventually.js';
import { type Landing, logIn } from '../fixtures/identity/browser.js';
import { type Hostile, startHostile } from '../fixtures/identity/hostile.js';
import type { Fault, Seen } from '../fixtures/identity/site.js';
import { Home } from './home.js';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
  otel.trace.disable();
});

const plainServer = fileURLToPath(new URL('../fakes/ledger-server.pl', import.meta.url));
const planted = (name: string) => `${name}/${randomBytes(18).toString('base64')}`;

/** Answers with everything that was sent, as a badly written server does in development. */
const repeats =
  (status: number): Fault =>
  (_run, response, { headers, body, query }: Seen) => {
    const sent = JSON.stringify({
      authorization: headers.authorization,
      cookie: headers.cookie,
      body,
      query: `${query}`,
    });
    const description = sent.replace(/[^\x20-\x7e]/g, '');
    response.writeHead(status, { 'content-type': 'application/json', 'x-debug': description.slice(0, 2_000) });
    response.end(JSON.stringify({ error: description, error_description: description, message: description }));
  };

/** The five encodings of a value. */
const encodings = (value: string): readonly string[] => [
  value,
  JSON.stringify(value).slice(1, -1),
  encodeURIComponent(value),
  Buffer.from(value).toString('base64').replace(/=+$/, ''),
  Buffer.from(value).toString('hex'),
];

const filesBelow = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name));
const textOf = (files: readonly string[]): string => files.map((file) => readFileSync(file, 'latin1')).join('\n');

/** The writable memory of a process. */
function memoryOf(pid: number): string {
  const maps = readFileSync(`/proc/${pid}/maps`, 'utf8');
  const mem = process.getBuiltinModule('node:fs').openSync(`/proc/${pid}/mem`, 'r');
  try {
    return [...maps.matchAll(/^([0-9a-f]+)-([0-9a-f]+) rw/gm)]
      .map(([, from = '', to = '']) => {
        const [start, end] = [Number.parseInt(from, 16), Number.parseInt(to, 16)];
        const chunk = Buffer.alloc(Math.min(end - start, 64 * 1024 * 1024));
        try {
          process.getBuiltinModule('node:fs').readSync(mem, chunk, 0, chunk.length, start);
        } catch {
          return '';
        }
        return chunk.toString('latin1');
      })
      .join('\n');
  } finally {
    process.getBuiltinModule('node:fs').closeSync(mem);
  }
}

const spans = new InMemorySpanExporter();

interface Life {
  readonly hostile: Hostile;
  readonly home: Home;
  readonly pages: Landing[];
  readonly values: {
    readonly secret: string;
    readonly cookie: string;
    readonly seal: string;
    readonly proxy: string;
    readonly pem: string;
  };
}

async function begin(): Promise<Life & { config: HostConfig & Record<string, unknown> }> {
  const hostile = await startHostile();
  const home = new Home();
  ends.push(
    () => hostile.close(),
    () => home.end(),
  );
  const { as, rs } = hostile;
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const pem = keys.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  const values = {
    ...{ secret: planted('secret'), cookie: `session=${planted('cookie')}`, seal: randomBytes(32).toString('base64') },
    ...{ proxy: planted('proxy').replaceAll('/', '-'), pem },
  };
  as.authMethods = ['client_secret_post', 'private_key_jwt'];
  as.addClient({ client_id: 'job', publicKey: keys.publicKey.export({ type: 'spki', format: 'pem' }).toString() });
  as.addClient({ client_id: 'own', client_secret: values.secret, token_endpoint_auth_method: 'client_secret_post' });
  for (const [name, text] of [
    ['secret', values.secret],
    ['cookie', values.cookie],
    ['key.pem', pem],
  ] as const)
    home.put(name, text);
  home.env.HOSTLER_SEAL = values.seal;
  home.env.HTTPS_PROXY = `http://ada:${encodeURIComponent(values.proxy)}@127.0.0.1:9`;
  home.putOwnConfig({ identity: { key: `\${env:HOSTLER_SEAL}` } });
  const { url } = rs;
  const issuer = as.issuer;
  const config = {
    listen: { port: 0 },
    mcpServers: {
      docs: { url },
      own: { url, auth: { issuer, clientId: 'own', clientSecret: `\${file:secret}`, account: 'own' } },
      job: {
        url,
        auth: { grant: 'client_credentials', issuer, clientId: 'job', clientKey: { pem: `\${file:key.pem}` } },
      },
      cookie: { url, headers: { Cookie: `\${file:cookie}` }, auth: { grant: 'none' } },
      // Servers get the proxy of the network, unless their entry takes it away.
      plain: {
        command: 'perl',
        args: [plainServer],
        env: { LEDGER: path.join(home.folder, 'ledger'), HTTPS_PROXY: null },
        lazy: false,
      },
    },
  };
  home.write(config);
  return { hostile, home, pages: [], values, config };
}

test('AC-K1 no secret of a login is in any of 18 places, in five encodings', async () => {
  const life = await begin();
  const { hostile, home, pages, values } = life;
  const { as, rs } = hostile;
  const printed = new Map<string, string>();
  const run = async (...args: string[]) => {
    const { stdout, stderr } = await home.run(...args);
    printed.set(args.join(' '), `${printed.get(args.join(' ')) ?? ''}${stdout}${stderr}`);
    return stdout;
  };
  const login = async (...args: string[]) => {
    const ended = await home.login([...args, '--no-browser'], async (url) => pages.push(await logIn(url)));
    // The person is shown the address, which has the state in it.
    const text = `${ended.stdout}${ended.stderr}`.replace(/^ +http:\/\/\S+\/authorize\?\S+$/gm, '');
    printed.set(`login ${args.join(' ')} ${printed.size}`, text);
    return ended.code;
  };
  const up = home.start(['up', '--config', home.config, '--json', '--show-key']);
  const ready = await eventually('hostler serves', () => /\{"ready":true.*\}/.exec(up.output())?.[0]);
  const { url, key, pid } = JSON.parse(ready) as { url: string; key: string; pid: number };

  // Logins that work, and logins at an authorization server that repeats what it was sent.
  expect([await login('docs'), await login('own')]).toEqual([0, 0]);
  for (const status of [200, 400]) {
    as.site.fail('token', repeats(status), 1);
    expect(await login('docs')).toBe(1);
  }
  as.site.fail('register', repeats(400));
  expect(await login('docs', '--fresh')).toBe(1);
  as.site.heal();
  expect(await login('docs')).toBe(0);
  await run('call', 'docs', 'read', '{"nonce":"1"}');
  const call = async (server: string) => {
    const name = `call ${server} ${printed.size}`;
    printed.set(name, await callThrough(url, key, server));
  };
  for (const server of ['docs', 'own', 'job', 'cookie', 'plain']) await call(server);
  // A server that repeats the token, in the status of each kind.
  for (const status of [500, 403, 400, 200]) {
    rs.site.fail('mcp', repeats(status), 2);
    for (const server of ['docs', 'job', 'cookie']) await call(server);
    rs.site.heal();
  }
  // Refreshes that work, are refused and are lost.
  as.grants.expireAccessTokens();
  for (const server of ['docs', 'own', 'job']) await call(server);
  as.grants.expireAccessTokens();
  as.site.fail('token', repeats(400));
  for (const server of ['docs', 'own', 'job']) await call(server);
  await run('status');
  const status = await run('status', '--json');
  const outputs: [keyof typeof jsonShapes, string][] = [['status', status]];
  await run('why', 'docs');
  for (const server of ['docs', 'own', 'job']) outputs.push(['why', await run('why', server, '--json')]);
  outputs.push(['auth', await run('auth', '--json', '--config', home.config)]);
  outputs.push(['doctor', await run('doctor', '--json', '--config', home.config)]);
  await run('auth', '--config', home.config);
  await run('logs', '--json');
  await run('trust', home.config, '--json');
  const metrics = await fetch(url.replace('/mcp', '/metrics'), { headers: { authorization: `Bearer ${key}` } });
  const scraped = await metrics.text();
  printedJson = outputs;
  const { commands, environments, child } = processesBelow(pid);
  const heap = memoryOf(child);
  const store = filesBelow(path.join(home.folder, '.local', 'share', 'hostler')).filter((file) =>
    file.includes('identity.db'),
  );
  const stored = textOf(store);
  const inProgram = await program(life);
  as.site.heal();
  for (const server of ['docs', 'own']) await run('logout', server, '--config', home.config);
  up.child.kill('SIGTERM');
  const { stderr: log } = await up.ended;

  const forms = [...as.tokenRequests(), ...as.site.at('revoke')].map(({ form }) => form);
  const all = (name: string) => forms.flatMap((form) => form.get(name) ?? []);
  const secrets: Readonly<Record<string, readonly string[]>> = {
    'access token': [...rs.tokens, ...as.grants.tokens.keys()],
    'refresh token': [...all('refresh_token'), ...as.grants.families.map(({ current }) => current)],
    code: all('code'),
    verifier: all('code_verifier'),
    state: as.site.at('authorize').flatMap(({ query }) => query.get('state') ?? []),
    'client secret': [values.secret, ...all('client_secret')],
    assertion: all('client_assertion'),
    'proxy password': [values.proxy],
    cookie: [values.cookie],
    key: [key],
    'sealing key': [values.seal],
    PEM: [values.pem, values.pem.split('\n')[1] ?? '-'],
  };
  for (const [name, found] of Object.entries(secrets)) expect([name, found.length > 0]).toEqual([name, true]);

  const named = (pattern: RegExp) => [...printed].filter(([name]) => pattern.test(name)).map(([, text]) => text);
  // The key of the port is stored for the commands of the user.
  const isKeyFile = (file: string) => readFileSync(file, 'latin1').includes(key) && !file.includes('.db');
  /** The text of each place, and something that only this place can have said: an empty or wrong text would have no leak. */
  const sinks: Readonly<Record<string, readonly [text: string, proof: RegExp | string]>> = {
    log: [log, /docs/],
    error: [named(/^(?:call|login|logout) /).join('\n'), 'needs_reauth'],
    status: [named(/^status/).join('\n'), as.issuer],
    'metrics label': [scraped, 'hostler_auth_refresh_total{server="own",result="ok"}'],
    'audit record': [inProgram.events, /kind: 'auth'/],
    'stderr ring': [named(/^logs/).join('\n'), /"server":"plain"/],
    'log of calls': [inProgram.calls, 'docs-served'],
    'cache file': [
      textOf(filesBelow(path.join(home.folder, 'data')).filter((file) => !isKeyFile(file))),
      'SQLite format 3',
    ],
    'crash report': [inProgram.report, '"javascriptHeap"'],
    trace: [inProgram.traces, /'hostler.outcome': 'ok'[\s\S]*'hostler.outcome': '(?!ok)/],
    'configuration dump': [named(/^(?:trust|tools)/).join('\n'), 'mcpServers.plain'],
    'heap of a child': [heap, 'ledger-server.pl'],
    'command lines': [commands, 'ledger-server.pl'],
    'environments of other children': [environments, 'LEDGER='],
    'callback pages': [
      JSON.stringify(pages.map(({ text, headers, status: code }) => [text, [...headers], code])),
      'Login received',
    ],
    'identity.db': [stored, as.issuer],
    'control socket': [named(/^(?:why|auth|doctor|status)/).join('\n'), '"registration"'],
    'problems of a program': [inProgram.problems, 'HostError'],
  };
  let cells = 0;
  const unproven: string[] = [];
  const leaks: string[] = [];
  for (const [sink, [text, proof]] of Object.entries(sinks)) {
    const isProven = typeof proof === 'string' ? text.includes(proof) : proof.test(text);
    if (!isProven) unproven.push(`${sink}: ${text.slice(0, 600)}`);
    for (const [name, found] of Object.entries(secrets))
      for (const [at, encoding] of ['plain', 'JSON', 'URL', 'base64', 'hex'].entries()) {
        cells++;
        if (found.some((value) => text.includes(encodings(value)[at] as string)))
          leaks.push(`${sink} has the ${name} (${encoding})`);
      }
  }
  expect([unproven, leaks]).toEqual([[], []]);
  expect(cells).toBe(18 * 12 * 5);
}, 90_000);

/** What the commands of the first test printed. */
let printedJson: [keyof typeof jsonShapes, string][] = [];

/** Names of all members of a value, and of their members. Numbers stand for elements of a list. */
const membersOf = (value: unknown): string[] =>
  typeof value !== 'object' || value === null
    ? []
    : Object.entries(value).flatMap(([name, inner]) => [...(Array.isArray(value) ? [] : [name]), ...membersOf(inner)]);

/** Names of all members that a JSON Schema lists. */
const listedIn = (schema: unknown): string[] =>
  typeof schema !== 'object' || schema === null
    ? []
    : Object.entries(schema).flatMap(([name, inner]) => [
        ...(name === 'properties' ? Object.keys(inner as object) : []),
        ...listedIn(inner),
      ]);

/** Names in the count of refreshes by result. */
const results = new Set(['ok', 'other', 'unavailable']);

test('AC-K9 the JSON of a login has only listed members, and none of them is for a secret', () => {
  expect(printedJson.length).toBe(6);
  for (const [name, text] of printedJson) {
    const value: unknown = JSON.parse(text);
    expect([name, jsonShapes[name].safeParse(value).error?.issues ?? []]).toEqual([name, []]);
    const listed = new Set(listedIn(jsonSchemaOf(name)));
    expect([name, membersOf(value).filter((each) => !listed.has(each) && !results.has(each))]).toEqual([name, []]);
  }
  expect(JSON.parse(printedJson[0]?.[1] ?? '{}')).toMatchObject({
    servers: expect.arrayContaining([expect.objectContaining({ name: 'docs', auth: expect.anything() })]),
  });
  const isForSecret =
    /^(?:\w*token|\w*secret\w*|\w*verifier|\w*password|pem|assertion|cookie|authorization|headers?)$/i;
  for (const name of ['auth', 'why', 'doctor', 'status', 'login', 'logout'] as const)
    expect([name, listedIn(jsonSchemaOf(name)).filter((each) => isForSecret.test(each))]).toEqual([name, []]);
});

/** The answer to a call through the port, with its headers. */
async function callThrough(url: string, key: string, server: string): Promise<string> {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': {},
  };
  const response = await fetch(`${url}/${server}`, {
    method: 'POST',
    headers: {
      ...{ authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      ...{ accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2026-07-28' },
      ...{ 'mcp-method': 'tools/call', 'mcp-name': 'read' },
    },
    body: JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'read', arguments: {}, _meta },
    }),
  });
  return `${await response.text()}${JSON.stringify([...response.headers])}`;
}

/** Hostler's own command line, and those and the environments of the servers that it started. */
function processesBelow(pid: number): { commands: string; environments: string; child: number } {
  const read = (each: string | number, name: string) => readFileSync(`/proc/${each}/${name}`, 'latin1');
  const parents = new Map<string, string>();
  for (const each of readdirSync('/proc').filter((name) => /^\d+$/.test(name)))
    try {
      parents.set(each, /^PPid:\t(\d+)$/m.exec(read(each, 'status'))?.[1] ?? '');
    } catch {
      // It has ended.
    }
  const isBelow = (each: string): boolean => {
    const parent = parents.get(each);
    return parent !== undefined && (parent === String(pid) || isBelow(parent));
  };
  const children = [...parents.keys()].filter(isBelow);
  const child = children.find((each) => read(each, 'cmdline').includes('ledger-server.pl'));
  return {
    commands: [pid, ...children].map((each) => read(each, 'cmdline')).join('\n'),
    environments: children.map((each) => read(each, 'environ')).join('\n'),
    child: Number(child),
  };
}

/** The same logins in a program: events, traces, the log of calls, problems, and the report of Node about the process. */
async function program({ hostile: { as, rs }, home, values }: Life) {
  otel.trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] }));
  const events: unknown[] = [];
  const problems: string[] = [];
  const stateDir = path.join(home.folder, 'program');
  const dir = path.join(home.folder, '.local', 'share', 'hostler');
  const auth = { grant: 'client_credentials', issuer: as.issuer, clientId: 'job', clientKey: { pem: values.pem } };
  const host: Host = await createHost(
    {
      telemetry: { traces: true },
      mcpServers: { docs: { url: rs.url }, job: { url: rs.url, auth }, gone: { url: 'http://127.0.0.1:1/mcp' } },
    },
    { identity: { dir, key: values.seal }, stateDir, onProblem: (error) => problems.push(inspected(error)) },
  );
  host.on('any', (event) => events.push(event));
  const call = (server: string, nonce: string) =>
    host
      .call(server, 'write', { nonce }, { idempotencyKey: nonce })
      .catch((error: unknown) => problems.push(inspected(error)));
  as.site.heal();
  for (const server of ['docs', 'job'])
    expect([server, await call(server, `${server}-served`)]).toMatchObject([server, { isError: false }]);
  rs.site.fail('mcp', repeats(500), 2);
  for (const server of ['docs', 'job']) await call(server, `${server}-repeated`);
  rs.site.heal();
  as.grants.expireAccessTokens();
  as.site.fail('token', repeats(400));
  for (const server of ['docs', 'job', 'gone']) await call(server, `${server}-refused`);
  as.site.heal();
  problems.push(inspected(host.status()));
  // The report names the environment, so it is made without that of this process.
  const { environmentVariables: _own, ...report } = process.report.getReport() as unknown as Record<string, unknown>;
  await host.close();
  return {
    events: inspected(events),
    problems: problems.join('\n'),
    calls: textOf(filesBelow(stateDir)),
    report: JSON.stringify(report),
    traces: inspected(
      spans
        .getFinishedSpans()
        .map(({ name, attributes, status, events: inSpan }) => [name, attributes, status, inSpan]),
    ),
  };
}

/** As `console.error` of a program prints it, with members and causes. */
const inspected = (value: unknown): string =>
  process.getBuiltinModule('node:util').inspect(value, { depth: 20, showHidden: true });
