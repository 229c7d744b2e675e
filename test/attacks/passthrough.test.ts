/**
 * X6: no credential and no other header of a client reaches a server. Every call carries texts that exist nowhere else, and every byte
 * that the servers receive, and all output of Hostler, is searched for them.
 */
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { countFor } from '../tier.js';
import { Attacked, keysAndRoles, messageOf, OTHER_KEY, type Sending } from './attacked.js';

const calls = countFor(500, 2_500);
const mark = `canary${randomBytes(6).toString('hex')}`;
const servers = ['pipe-legacy', 'pipe-modern', 'web-legacy', 'web-modern'];

/** With keys, and without keys: only without keys does an arbitrary Authorization reach a call. */
const gateways = { keyed: new Attacked(), open: new Attacked() };
let used = 0;
const canary = () => `${mark}${++used}x`;

/** The headers in which gateways, proxies, browsers and clouds send credentials. */
const canaryHeaders = (): Record<string, string> => ({
  cookie: `session=${canary()}; token=${canary()}`,
  'proxy-authorization': `Bearer ${canary()}`,
  'x-api-key': canary(),
  'x-auth-token': canary(),
  'x-forwarded-for': canary(),
  'x-forwarded-access-token': canary(),
  'x-request-id': canary(),
  'x-goog-api-key': canary(),
  'x-amz-security-token': canary(),
  'x-mcp-header': canary(),
  'mcp-param-text': canary(),
  'last-event-id': canary(),
  traceparent: `00-${randomBytes(16).toString('hex')}-${randomBytes(8).toString('hex')}-01;${canary()}`,
  baggage: `user=${canary()}`,
  'user-agent': canary(),
  referer: `http://${canary()}.example/`,
  from: canary(),
  [`x-${canary()}`]: 'the name is one too',
});

beforeAll(async () => {
  await Promise.all(
    Object.values(gateways).map(async (gateway) => {
      const mcpServers = {
        'pipe-legacy': gateway.stdioServer('pipe-legacy', 'legacy'),
        'pipe-modern': gateway.stdioServer('pipe-modern', 'modern'),
        'web-legacy': await gateway.httpServer('web-legacy', 'legacy'),
        'web-modern': await gateway.httpServer('web-modern', 'modern'),
      };
      const isOpen = gateway === gateways.open;
      const config = { mcpServers, log: { level: 'debug' }, ...(isOpen ? {} : keysAndRoles) };
      await gateway.up(config, ...(isOpen ? ['--auth', 'none'] : []));
    }),
  );
}, 30_000);
afterAll(() => Promise.all(Object.values(gateways).map((gateway) => gateway.remove())));

const filesBelow = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true }).flatMap((entry) =>
    entry.isFile() ? [path.join(entry.parentPath, entry.name)] : [],
  );

test.each(['keyed', 'open'] as const)(
  `X6 ${2 * calls} calls with canaries in every header: none reaches a server (%s)`,
  async (kind) => {
    const gateway = gateways[kind];
    const key = kind === 'keyed' ? OTHER_KEY : undefined;
    const told: string[] = [];
    const secrets = new Set<string>(kind === 'keyed' ? [OTHER_KEY, gateway.ready.key] : []);
    const sessions = await Promise.all(
      servers.map(() =>
        gateway.session({ key, headers: { ...canaryHeaders(), ...(key ? {} : { authorization: canary() }) } }),
      ),
    );
    for (const session of sessions) secrets.add(session['mcp-session-id'] as string);
    let answered = 0;
    const one = async (era: 'modern' | 'legacy', i: number) => {
      const server = servers[i % servers.length] as string;
      const params = { name: `${server}__echo`, arguments: { text: `n${i}` } };
      const headers = { ...canaryHeaders(), ...(key ? {} : { authorization: `Bearer ${canary()}` }) };
      const sending: Sending = { path: `/mcp?access_token=${canary()}`, key };
      const reply =
        era === 'modern'
          ? await gateway.modern(
              'tools/call',
              params,
              { ...sending, headers: { ...headers, 'mcp-session-id': canary() } },
              i,
            )
          : await gateway.legacy('tools/call', params, { ...sending, headers: { ...headers, ...sessions[i % 4] } }, i);
      if (reply.text.includes(mark)) told.push(reply.text);
      const { content } = (messageOf(reply).result ?? {}) as { content?: { text: string }[] };
      if (content?.[0]?.text === `n${i}`) answered++;
    };
    const work = Array.from({ length: calls }, (_, i) => i);
    const worker = async (era: 'modern' | 'legacy', mine: number[]) => {
      for (const i of mine) await one(era, i);
    };
    await Promise.all(
      (['modern', 'legacy'] as const).flatMap((era) =>
        Array.from({ length: 8 }, (_, at) =>
          worker(
            era,
            work.filter((i) => i % 8 === at),
          ),
        ),
      ),
    );
    expect([answered, told]).toEqual([calls * 2, []]);

    // Refused headers are not quoted either.
    for (const sending of [
      { key: canary() },
      { path: `/${canary()}` },
      { path: `/mcp/${canary()}` },
      { headers: { 'mcp-session-id': canary(), 'mcp-protocol-version': '2025-11-25' } },
      { headers: { 'content-type': canary() } },
      { headers: { host: `${canary()}.example` } },
      { headers: { 'mcp-protocol-version': '2026-07-28', 'mcp-method': canary(), 'mcp-name': canary() } },
    ]) {
      const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' });
      const reply = await gateway.send({ key, ...sending, body });
      expect([reply.status >= 400 || !key, reply.text.includes(mark)]).toEqual([true, false]);
    }
    const metrics = await gateway.send({ method: 'GET', path: '/metrics', key, headers: canaryHeaders() });
    for (const server of servers) await gateway.receivedBytes(server);
    const kept = filesBelow(gateway.place.dataDir).filter((file) => path.basename(file) !== 'key');
    const searched: Record<string, string> = {
      ...Object.fromEntries(servers.map((server) => [server, gateway.received(server)])),
      ...Object.fromEntries(kept.map((file) => [file, readFileSync(file, 'latin1')])),
      metrics: metrics.text,
      stdout: gateway.running.stdout.split('\n').slice(1).join('\n'),
      stderr: gateway.running.stderr,
    };
    const found = Object.entries(searched).flatMap(([where, bytes]) =>
      [mark, ...secrets].filter((secret) => bytes.includes(secret)).map((secret) => `${where}: ${secret}`),
    );
    expect(found).toEqual([]);
    // The searched texts contain most calls, and many canaries were sent.
    for (const server of servers) expect(searched[server]?.split('tools/call').length).toBeGreaterThan(calls / 2);
    expect(used).toBeGreaterThan(calls * 20);
  },
  60_000,
);
