import { beforeEach, expect, test } from 'vitest';
import { SecretValues } from '../../config/secrets/secret-values.js';
import { secretsEntry } from '../../config/secrets/secrets-settings.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { ReferencedHeaders } from './referenced-headers.js';

const headers = { 'X-Key': `\${exec:key}`, Authorization: `Bearer \${exec:token}`, 'X-Plain': 'plain' };
const { exec } = secretsEntry.parse({
  exec: { key: { argv: ['key'], ttl: '1m' }, token: { argv: ['token'], ttl: '1m' } },
});

let clock: FakeClock;
let values: Record<string, string | undefined>;
let runs: number;
let problems: unknown[];
let secrets: SecretValues;
let provider: ReferencedHeaders;
beforeEach(async () => {
  clock = new FakeClock();
  values = { key: 'key-1', token: 'token-1' };
  runs = 0;
  problems = [];
  secrets = new SecretValues({
    clock,
    redactor: { know: () => {}, forget: () => {} },
    environmentOf: () => ({}),
    run: ({ argv: [name = ''] }) => {
      runs++;
      const text = values[name];
      return Promise.resolve(text === undefined ? { why: 'ended with exit code 1' } : { text });
    },
  });
  secrets.configure(exec);
  provider = new ReferencedHeaders({ server: 's', headers, secrets, clock, onProblem: (each) => problems.push(each) });
});

/** As the connector does before it connects. */
const connect = () => Promise.all(Object.values(headers).map((text) => secrets.resolve(text, 'f')));
const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

test('there is no token before the first connect; then it is one object with all referenced headers', async () => {
  expect(provider.current()).toBeUndefined();
  await connect();
  const token = provider.current();
  expect(token).toEqual({ header: ['authorization', 'Bearer token-1'], others: [['x-key', 'key-1']] });
  expect(provider.current()).toBe(token);
});

test('AC-K3 after a refusal everything is resolved again, and only another value counts as a renewal', async () => {
  await connect();
  provider.current();
  expect([await provider.recover(), runs]).toEqual([false, 4]);
  values.key = 'key-2';
  expect(await provider.recover()).toBe(true);
  expect(provider.current()?.others).toEqual([['x-key', 'key-2']]);
});

test('AC-K3 a secret whose time is over is renewed behind the requests, and listeners hear of it', async () => {
  await connect();
  const token = provider.current();
  let changes = 0;
  const off = provider.onChanged(() => changes++);
  values.token = 'token-2';
  clock.advance(59_999);
  provider.current();
  await settle();
  expect([runs, changes]).toEqual([2, 0]);
  clock.advance(5_000);
  expect(provider.current()).toBe(token);
  await settle();
  expect([runs, changes, provider.current()?.header[1]]).toEqual([4, 1, 'Bearer token-2']);
  off();
  values.token = 'token-3';
  clock.advance(65_000);
  provider.current();
  await settle();
  expect(changes).toBe(1);
});

test('while a secret cannot be resolved, the last one is used, and the reason is reported', async () => {
  await connect();
  const token = provider.current();
  values.token = undefined;
  expect([await provider.recover(), provider.current()]).toEqual([false, token]);
  expect(problems).toMatchObject([
    { message: `mcpServers.s.headers.Authorization: the command 'token' ended with exit code 1` },
  ]);
});
