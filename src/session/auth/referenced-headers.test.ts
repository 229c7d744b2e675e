import { beforeEach, describe, expect, test } from 'vitest';
import { bearer, FakeAuthProvider } from '../../../test/fakes/auth-provider.js';
import { SecretValues } from '../../config/secrets/secret-values.js';
import { secretsEntry } from '../../config/secrets/secrets-settings.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { createRedactor, type Redactor } from '../../kernel/redact.js';
import { AuthRecovery } from './auth-recovery.js';
import { ReferencedHeaders, withReferences } from './referenced-headers.js';

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
let redactor: Redactor;
beforeEach(async () => {
  clock = new FakeClock();
  values = { key: 'key-1', token: 'token-1' };
  runs = 0;
  problems = [];
  redactor = createRedactor();
  secrets = new SecretValues({
    clock,
    redactor,
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

/** The same steps as the connector takes before it connects. */
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

test('AC-K3 an expired secret is renewed in the background, and listeners are notified', async () => {
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

describe('AC-K3 beside the tokens of a login', () => {
  const context = {
    kind: 'token',
    challenge: undefined,
    signal: new AbortController().signal,
    deadlineAtMs: 9e9,
  } as const;
  const setup = (token = bearer('of-the-login') as ReturnType<typeof bearer> | undefined) => {
    const login = new FakeAuthProvider(token);
    return { login, joined: withReferences(login, provider) };
  };

  test('AC-K3 both are sent; the token of the login replaces a header of the same name, and its grant is used', async () => {
    await connect();
    const { login, joined } = setup({ ...bearer('of-the-login'), grant: 'g' } as ReturnType<typeof bearer>);
    const token = joined.current();
    expect(token).toEqual({
      header: ['authorization', 'Bearer of-the-login'],
      others: [['x-key', 'key-1']],
      grant: 'g',
    });
    expect(joined.current()).toBe(token);
    login.token = undefined;
    expect(joined.current()?.header).toEqual(['authorization', 'Bearer token-1']);
  });

  test('AC-K3 a rotated secret is found before the login is renewed; without one the login is renewed', async () => {
    await connect();
    const { login, joined } = setup();
    values.key = 'key-2';
    expect([await joined.recover(joined.current(), context), login.recoveries.length]).toEqual([true, 0]);
    expect(joined.current()?.others).toEqual([['x-key', 'key-2']]);
    const before = runs;
    expect(await joined.recover(joined.current(), { ...context, kind: 'scope' })).toBe(false);
    expect(runs).toBe(before);
    expect(await joined.recover(joined.current(), context)).toBe(false);
    expect(login.recoveries.map(({ failed }) => failed?.header[1])).toEqual(Array(2).fill('Bearer of-the-login'));
    login.token = undefined;
    await joined.recover(joined.current(), context);
    expect(login.recoveries.at(-1)?.failed).toBeUndefined();
  });

  test('X15 a header that was the token before the login stays redacted, however many tokens follow', async () => {
    await connect();
    const { login, joined } = setup();
    login.token = undefined;
    const recovery = new AuthRecovery({ server: 's', provider: joined, clock, secrets: redactor });
    expect(recovery.current()?.header[1]).toBe('Bearer token-1');
    for (let count = 0; count < 10; count++) login.login(bearer(`access-${count}`));
    expect(redactor.mask('token-1 access-0 access-9')).toBe('[REDACTED] access-0 [REDACTED]');
    recovery.close();
  });

  test('listeners are notified of both, and reading a token does not count as its use', async () => {
    await connect();
    const { login, joined } = setup();
    let [changes, looks] = [0, 0];
    const off = joined.onChanged(() => changes++);
    login.login(bearer('another'));
    expect(changes).toBe(1);
    Object.assign(login, {
      peek: () => {
        looks++;
        return login.token;
      },
    });
    expect([joined.peek?.()?.header[1], looks]).toEqual(['Bearer another', 1]);
    off();
    login.login(undefined);
    expect(changes).toBe(1);
  });
});
