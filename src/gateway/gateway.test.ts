/** Tests how the parts are joined; each part has its own tests. */
import { PassThrough } from 'node:stream';
import { expect, test, vi } from 'vitest';
import { listenEntry } from '../config/listen-settings.js';
import type { Host } from '../host/host.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { embedder, type Principal } from '../policy/operation.js';
import { createGateway, type GatewayParts, type GatewaySettings } from './gateway.js';
import type { HttpIngressOptions } from './http/http-ingress.js';
import type { KeyedRoute } from './http/routes.js';
import type { RouterOptions } from './routing/router.js';
import type { StdioIngressOptions } from './stdio/stdio-ingress.js';

const ada = { id: 'ada', role: undefined, scopes: [] };

function open(
  changes: Partial<GatewaySettings> = {},
  failure?: NodeJS.ErrnoException,
  opensLater = false,
  hearsProblems = true,
) {
  const log: string[] = [];
  const routers: RouterOptions[] = [];
  const problems: unknown[] = [];
  const http: HttpIngressOptions[] = [];
  const stdio: StdioIngressOptions[] = [];
  let endPipe = () => {};
  const health = { status: 200, contentType: 'text/plain', body: 'ok' };
  const parts = {
    createRouter: (options: RouterOptions) => {
      routers.push(options);
      return {};
    },
    createBridge: () => ({}),
    parseKeys: (keys: object) => Object.keys(keys),
    Keyring: class {
      constructor({ localKey, keys }: { localKey: string; keys: string[] }) {
        log.push(`keys ${localKey} ${keys}`);
      }
      authenticate = (header: string | undefined) => (header === 'Bearer k' ? ada : undefined);
      now = (principal: object) => principal;
      nextExpiryMs = () => undefined;
      replace = (keys: string[]) => void log.push(`replaced ${keys}`);
    },
    readOrCreateLocalKey: (dataDir: string) => ({ key: `key of ${dataDir}`, isNew: true }),
    metrics: async () => () => ({ contentType: 'm', text: async () => 'figures', close: () => log.push('no counts') }),
    healthz: () => health,
    Readiness: class {
      readyz = () => health;
      opened = () => void log.push('opened');
      stopping = () => void log.push('stopping');
    },
    http: async () => (options: HttpIngressOptions) => {
      http.push(options);
      return {
        figures: () => ({ clients: { legacy: 1, modern: 2 }, httpAnswers: { 2: 3 } }),
        opened: () => void log.push('http opened'),
        allow: (names: object) => void log.push(JSON.stringify(names)),
        listen: async () => {
          if (failure) throw failure;
          return 'http://127.0.0.1:1/mcp';
        },
        keysChanged: () => void log.push('keysChanged'),
        close: async (drainMs: number) => void log.push(`http closed in ${drainMs}`),
      };
    },
    stdio: async () => (options: StdioIngressOptions) => {
      stdio.push(options);
      const closed = new Promise<void>((resolve) => {
        endPipe = resolve;
      });
      return { closed, figures: () => ({}), close: async () => endPipe() };
    },
  } as unknown as GatewayParts;
  const settings: GatewaySettings = {
    listen: listenEntry.parse({}),
    keys: { a: 1 },
    auth: 'key',
    version: '1',
    ...changes,
  };
  const host = {
    whenReady: () => undefined,
    hasRoles: false,
    learnTools: () => {},
    showUnrouted: () => {},
    names: () => ['a', 'b'],
    isAllowed: ({ id }: Principal, server: string) => id === 'ada' && server === 'b',
  };
  const onProblem = (problem: unknown) => problems.push(problem);
  const gateway = createGateway({
    host: host as unknown as Host,
    settings,
    dataDir: '/d',
    clock: new FakeClock(),
    parts,
    opensLater,
    ...(hearsProblems ? { onProblem } : {}),
  });
  return { gateway, log, http, stdio, host, routers, problems };
}

test('keys exist before anything listens, and nothing listens before listen() is called', async () => {
  const { gateway: opening, log, http } = open();
  const gateway = await opening;
  expect([log, http, gateway.url]).toEqual([['keys key of /d a'], [], undefined]);
  expect([gateway.key, gateway.isNewKey, gateway.keyFile]).toEqual(['key of /d', true, '/d/key']);
  expect(await gateway.listen()).toBe('http://127.0.0.1:1/mcp');
  expect(gateway.url).toBe('http://127.0.0.1:1/mcp');
  expect(http[0]?.listen).toEqual({ host: '127.0.0.1', port: 8383, hosts: [], origins: [] });
  expect(['Bearer k', undefined].map((header) => http[0]?.authenticate(header))).toEqual([ada, undefined]);
  const routes = http[0]?.routes;
  expect([...(routes ?? [])].map(([path, { isPublic }]) => [path, isPublic])).toEqual([
    ['/healthz', true],
    ['/readyz', true],
    ['/metrics', false],
  ]);
  expect(await routes?.get('/metrics')?.answer?.()).toEqual({ status: 200, contentType: 'm', body: 'figures' });
  gateway.replaceKeys({ b: 1 });
  expect(log.slice(-2)).toEqual(['replaced b', 'keysChanged']);
  gateway.allow({ allowedHosts: ['h'], allowedOrigins: ['o'] });
  expect(log.at(-1)).toBe('{"hosts":["h"],"origins":["o"]}');
});

test('a gateway whose host opens later listens at once, and reports the open host once', async () => {
  const { gateway: opening, http, log } = open({}, undefined, true);
  const gateway = await opening;
  await gateway.listen();
  expect([http[0]?.opensLater, log.filter((line) => line.endsWith('opened'))]).toEqual([true, []]);
  gateway.opened();
  gateway.opened();
  expect(log.filter((line) => line.endsWith('opened'))).toEqual(['http opened', 'opened']);
});

test('E5 answers may be cached as public only while there is neither a key nor a role', async () => {
  const { gateway: opening, host, routers } = open({ keys: {} });
  const gateway = await opening;
  const now = () => routers[0]?.mayBePublic?.();
  const seen = [now()];
  gateway.replaceKeys({ b: 1 });
  seen.push(now());
  gateway.replaceKeys({});
  seen.push(now());
  host.hasRoles = true;
  seen.push(now());
  expect(seen).toEqual([true, false, true, false]);
  const keyed = open();
  await keyed.gateway;
  expect(keyed.routers[0]?.mayBePublic?.()).toBe(false);
});

test('without keys every client is the operator, and no key is created', async () => {
  const { gateway: opening, http } = open({ auth: 'none' });
  const gateway = await opening;
  await gateway.listen();
  expect([gateway.key, gateway.keyFile, http[0]?.authenticate(undefined)]).toEqual([undefined, undefined, embedder]);
});

test('E12 metrics are for the operator, and for keys without a role that may call a server', async () => {
  const { gateway: opening, http } = open();
  await (await opening).listen();
  const metrics = http[0]?.routes?.get('/metrics') as KeyedRoute;
  const mayRead = (id: string, role?: string) => metrics.mayRead({ id, role, scopes: [] });
  expect([metrics.mayRead(embedder), mayRead('ada'), mayRead('bob'), mayRead('ada', 'reader')]).toEqual([
    ...[true, true, false, false],
  ]);
});

test('E14 with a key, metrics accept any Host; without keys, only a Host of this gateway', async () => {
  for (const auth of ['key', 'none'] as const) {
    const { gateway: opening, http } = open({ auth });
    await (await opening).listen();
    expect(http[0]?.routes?.get('/metrics')).toMatchObject({ checksHost: auth === 'none' });
  }
});

test.each([
  [undefined, 'http closed in 10000'],
  [3_000, 'http closed in 3000'],
])('E14 with drainMs %s, the log of the closing says: %s', async (drainMs, expected) => {
  const { gateway: opening, log } = open(drainMs === undefined ? {} : { drainMs });
  const gateway = await opening;
  await gateway.listen();
  await gateway.close();
  expect(log.slice(-3)).toEqual(['stopping', expected, 'no counts']);
});

test.each([
  ['0.0.0.0', 1],
  ['::', 1],
  ['gw.example', 1],
  ['127.0.0.1', 0],
  ['::1', 0],
  ['localhost', 0],
])('E12 listening at %s without TLS is warned about %i times', async (host, times) => {
  const { gateway: opening, problems } = open({ listen: listenEntry.parse({ host }) });
  const gateway = await opening;
  expect(problems).toEqual([]);
  await gateway.listen();
  expect(problems).toEqual(
    Array.from({ length: times }, () =>
      expect.objectContaining({
        hint: expect.stringContaining('reverse proxy'),
        message: expect.stringContaining(host),
      }),
    ),
  );
});

test('E12 the warning is also given when the embedder does not listen for problems', async () => {
  const warnings = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
  const { gateway } = open({ listen: listenEntry.parse({ host: '0.0.0.0' }) }, undefined, false, false);
  await (await gateway).listen();
  expect(warnings.mock.calls).toEqual([[expect.stringContaining('reverse proxy'), expect.anything()]]);
  warnings.mockRestore();
});

test('a pipe belongs to the operator, and lasts until its input or the gateway ends', async () => {
  const { gateway: opening, stdio, log } = open();
  const gateway = await opening;
  await gateway.listen();
  const served = gateway.serveStdio(new PassThrough(), new PassThrough());
  await Promise.resolve();
  expect(stdio[0]).toMatchObject({ principal: embedder, endpoint: { kind: 'all' } });
  await Promise.all([gateway.close(5), gateway.close(9), served]);
  expect(log.slice(1)).toEqual(['opened', 'http opened', 'stopping', 'http closed in 5', 'no counts']);
});

test.each([
  ['EADDRINUSE', 'port 8383 of 127.0.0.1 is already in use', '--port 0'],
  ['EACCES', 'port 8383 of 127.0.0.1 needs privileges that this user does not have', '--port 0'],
  ['EADDRNOTAVAIL', 'hostler cannot listen at 127.0.0.1, port 8383 (EADDRNOTAVAIL)', '--host'],
])('%s is reported with a hint', async (code, message, hint) => {
  const { gateway: opening } = open({}, Object.assign(new Error('no'), { code }));
  const error: unknown = await (await opening).listen().catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ message, hint: expect.stringContaining(hint), details: { reason: code } });
});
