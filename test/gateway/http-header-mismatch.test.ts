/**
 * F6: headers that differ from the body. 2,000 requests from a seed: each request is built correctly, then one change makes
 * it wrong. So the expected refusal does not depend on the code under test. As many requests stay correct: otherwise a guard that
 * refuses everything would pass.
 */
import { Agent, request as httpRequest } from 'node:http';
import { afterAll, describe, expect, test } from 'vitest';
import { type Random, randomInt, seededRandom } from '../../src/kernel/random.js';
import { key, META, rpc, start } from './http-harness.js';

const cases = 2_000;
const seed = 20_260_728;
const agent = new Agent({ keepAlive: true, maxSockets: 16 });
afterAll(() => agent.destroy());

interface Case {
  method: string;
  params: Record<string, unknown>;
  headers: Record<string, string | string[]>;
}

const base64 = (text: string) => `=?base64?${Buffer.from(text).toString('base64')}?=`;
/** An independent implementation of the rule: plain if possible, sometimes encoded without need. */
const encoded = (text: string, random: Random) =>
  /^[!-~]([ -~]*[!-~])?$/.test(text) && !text.startsWith('=?') && random() < 0.7 ? text : base64(text);

const names = [
  'echo',
  'Echo',
  'a b',
  'grüß',
  '日本',
  ' padded ',
  'a\tb',
  '=?base64?YQ==?=',
  'x'.repeat(300),
  'a,b',
  '"q"',
];
const subjects: ReadonlyArray<readonly [method: string, field: string | undefined]> = [
  ['tools/call', 'name'],
  ['prompts/get', 'name'],
  ['resources/read', 'uri'],
  ['tasks/get', 'taskId'],
  ['tasks/update', 'taskId'],
  ['tasks/cancel', 'taskId'],
  ['tools/list', undefined],
  ['vendor/method', undefined],
];

const pick = <T>(random: Random, list: readonly T[]): T => list[randomInt(random, 0, list.length - 1)] as T;
/** Header names in any case. */
const anyCase = (name: string, random: Random) =>
  [...name].map((letter) => (random() < 0.5 ? letter.toUpperCase() : letter)).join('');

function rightCase(random: Random): Case & { field: string | undefined } {
  const [method, field] = pick(random, subjects);
  const name = pick(random, names);
  const region = pick(random, ['eu', 'grüß', '', 'true', '7', ' x']);
  const count = randomInt(random, -5, 5);
  const params: Record<string, unknown> = { _meta: META };
  if (field !== undefined) params[field] = name;
  const headers: Case['headers'] = {
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': method,
    ...(field === undefined ? {} : { 'mcp-name': encoded(name, random) }),
  };
  if (method === 'tools/call') {
    params.arguments = { region, deep: { count, flag: count > 0 }, free: 1 };
    headers['mcp-param-region'] = region === '' ? '' : encoded(region, random);
    headers['mcp-param-count'] = String(count);
    headers['mcp-param-flag'] = String(count > 0);
  }
  return { method, params, headers, field };
}

type Change = (made: Case & { field: string | undefined }, random: Random) => boolean;

/** Each change returns false if it does not apply. */
const changes: Readonly<Record<string, Change>> = {
  'version missing': ({ headers }) => delete headers['mcp-protocol-version'],
  'another version': ({ headers }, random) => {
    headers['mcp-protocol-version'] = pick(random, [
      '2025-11-25',
      '2026-07-29',
      '2026-07-28x',
      '2026-07-28, 2026-07-28',
    ]);
    return true;
  },
  'version twice': ({ headers }) => {
    headers['mcp-protocol-version'] = ['2026-07-28', '2026-07-28'];
    return true;
  },
  'method missing': ({ headers }) => delete headers['mcp-method'],
  'another method': ({ headers, method }, random) => {
    headers['mcp-method'] = pick(
      random,
      ['tools/list', 'tools/call', 'ping', ''].filter((other) => other !== method),
    );
    return true;
  },
  'method in another case': ({ headers, method }) => {
    headers['mcp-method'] = method.replace(/^./, (first) => first.toUpperCase());
    return true;
  },
  'method in base64': ({ headers, method }) => {
    headers['mcp-method'] = base64(method);
    return true;
  },
  'method twice': ({ headers, method }) => {
    headers['mcp-method'] = [method, method];
    return true;
  },
  'name missing': ({ headers, field }) => field !== undefined && delete headers['mcp-name'],
  'another name': ({ headers, field, params }, random) => {
    if (field === undefined) return false;
    headers['mcp-name'] = encoded(
      pick(
        random,
        names.filter((other) => other !== params[field]),
      ),
      random,
    );
    return true;
  },
  'name in another case': ({ headers, field, params }) => {
    if (field === undefined) return false;
    const name = params[field] as string;
    const other = name === name.toUpperCase() ? name.toLowerCase() : name.toUpperCase();
    if (other === name) return false;
    headers['mcp-name'] = base64(other);
    return true;
  },
  'name in bad base64': ({ headers, field, params }, random) => {
    if (field === undefined) return false;
    const text = Buffer.from(params[field] as string).toString('base64');
    headers['mcp-name'] = pick(random, [
      ...[`=?BASE64?${text}?=`, `=?base64?${text}=?=`, `=?base64? ${text}?=`, `=?base64?-${text.slice(1)}?=`],
      ...['=?base64?/w==?=', `=?base64?${text}??=`],
    ]);
    return true;
  },
  'name in raw bytes': ({ headers, params, field }) => {
    if (field === undefined) return false;
    params[field] = 'grüß';
    headers['mcp-name'] = 'grüß';
    return true;
  },
  'name that is not in the body': ({ params, field }) => field !== undefined && delete params[field],
  'name that is not a string in the body': ({ params, headers, field }) => {
    if (field === undefined) return false;
    params[field] = 7;
    headers['mcp-name'] = '7';
    return true;
  },
  'parameter missing': ({ method, headers }, random) =>
    method === 'tools/call' && delete headers[`mcp-param-${pick(random, ['region', 'count', 'flag'])}`],
  'another parameter': ({ method, headers }, random) => {
    const name = pick(random, ['region', 'count', 'flag']);
    headers[`mcp-param-${name}`] = pick(random, ['other', '77', 'TRUE', base64('other'), '=?base64?!?=']);
    return method === 'tools/call';
  },
  'parameter twice': ({ method, headers }) => {
    headers['mcp-param-count'] = [String(headers['mcp-param-count']), String(headers['mcp-param-count'])];
    return method === 'tools/call';
  },
  'parameter that is not in the body': ({ method, params }, random) => {
    if (method !== 'tools/call') return false;
    params.arguments = pick(random, [undefined, {}, { region: null, deep: null }, { Region: 'eu' }, [], 'eu']);
    return true;
  },
};

function post(port: number, { method, params, headers }: Case, id: number): Promise<{ status: number; code: unknown }> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      {
        ...{ host: '127.0.0.1', port, method: 'POST', path: '/mcp', agent },
        headers: { 'content-type': 'application/json', authorization: key, ...headers },
      },
      (response) => {
        let text = '';
        response.on('data', (chunk) => {
          text += chunk;
        });
        response.on('end', () => resolve({ status: response.statusCode ?? 0, code: JSON.parse(text).error?.code }));
      },
    );
    request.on('error', reject);
    // Sends a buffer: Node would join a string with the headers and write both as UTF-8.
    request.end(Buffer.from(rpc(id, method, params)));
  });
}

describe('F6 header and body', () => {
  test(`${cases} that differ are refused with -32020 and 400 before the router sees them; ${cases} that agree pass`, async () => {
    const random = seededRandom(seed);
    const { router, port } = await start();
    const mirrored = [
      { name: 'Region', path: ['region'] },
      { name: 'Count', path: ['deep', 'count'] },
      { name: 'Flag', path: ['deep', 'flag'] },
    ];
    for (const name of names) router.mirrored.set(name, mirrored);
    const wrong: unknown[] = [];
    const used = new Map<string, number>();
    for (let i = 0; i < cases; i++) {
      const right = rightCase(random);
      right.headers = Object.fromEntries(
        Object.entries(right.headers).map(([name, value]) => [anyCase(name, random), value]),
      );
      const passed = await post(port, right, i);
      if (passed.status !== 200) wrong.push({ right, passed });

      const made = rightCase(random);
      let change = pick(random, Object.keys(changes));
      while (!changes[change]?.(made, random)) change = pick(random, Object.keys(changes));
      used.set(change, (used.get(change) ?? 0) + 1);
      const refused = await post(port, made, i);
      if (refused.status !== 400 || refused.code !== -32020) wrong.push({ change, made, refused });
      if (router.reached !== i + 1) throw new Error(`reached the router: ${JSON.stringify({ seed, change, made })}`);
    }
    expect(wrong).toEqual([]);
    expect([used.size, [...used.values()].reduce((sum, count) => sum + count)]).toEqual([
      ...[Object.keys(changes).length, cases],
    ]);
  });
});
