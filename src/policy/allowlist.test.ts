import { describe, expect, onTestFinished, test } from 'vitest';
import { failureOf, fakeCall, fakePrincipal, fakeResult, promised, staged } from '../../test/fakes/policy-call.js';
import type { RolePattern } from '../config/host-config.js';
import { randomInt, seededRandom } from '../kernel/random.js';
import { allow, denial, type Guard, type GuardRequest, noRoles, roleGuard } from './allowlist.js';

const call = fakeCall({ tool: 'delete_repo' });
const { principal } = call;
const result = fakeResult();
const yes: Guard = () => ({ allow: true });
const no: Guard = ({ server }) => ({ allow: false, reason: `${server} is off limits` });
const request = (server: string, tool: string | undefined, role?: string, action: GuardRequest['action'] = 'call') => ({
  principal: fakePrincipal('ann', role),
  server,
  tool,
  action,
});

/** Parsed as in the configuration: split at the first slash. */
const patterns = (...texts: string[]): RolePattern[] =>
  texts.map((text) => ({ server: text.slice(0, text.indexOf('/')), tool: text.slice(text.indexOf('/') + 1) }));

/** Counts the calls that pass; `guards` may be changed between calls. */
function guarded(...guards: Guard[]) {
  let passed = 0;
  const send = promised(
    staged(allow(() => guards))((_call, done) => {
      passed++;
      done(result);
    }),
  );
  return { send, guards, passed: () => passed };
}

describe('the stage', () => {
  test('AC-H8 a denied call fails before the server is looked up, and says what was denied and why', async () => {
    const { send, passed } = guarded(no);
    const error = await failureOf(send(call));
    expect(error.code).toBe('denied');
    expect(error.message).toBe("server 'github': call of github/delete_repo denied by allowlist: github is off limits");
    expect(error.details).toMatchObject({ server: 'github', tool: 'delete_repo', execution: 'not_executed' });
    expect([error.retryable, passed()]).toEqual([false, 0]);
  });

  test('D-26 guards combine by AND, in any order', async () => {
    expect(await guarded(yes, yes).send(call)).toBe(result);
    expect((await failureOf(guarded(yes, no).send(call))).code).toBe('denied');
    expect((await failureOf(guarded(no, yes).send(call))).code).toBe('denied');
    expect(await guarded().send(call)).toBe(result);
  });

  test('a changed guard applies from the next call on', async () => {
    const { send, guards } = guarded(yes);
    await send(call);
    guards.push(no);
    await expect(send(call)).rejects.toThrow('denied by allowlist');
  });

  test('the guard gets the principal, the tool and the action', async () => {
    const seen: GuardRequest[] = [];
    await guarded((asked) => {
      seen.push(asked);
      return { allow: true };
    }).send(call);
    expect(seen).toEqual([{ principal, server: 'github', tool: 'delete_repo', action: 'call' }]);
  });

  test('a guard that returns a promise denies, and a rejection of the promise is ignored', async () => {
    const unhandled: unknown[] = [];
    const note = (error: unknown) => unhandled.push(error);
    process.on('unhandledRejection', note);
    onTestFinished(() => void process.off('unhandledRejection', note));
    for (const late of [
      async () => Promise.reject(new Error('no database')),
      async () => ({ allow: true }),
      () => ({
        // biome-ignore lint/suspicious/noThenProperty: a guard may answer with any thenable.
        then: () => {
          throw new Error('broken');
        },
      }),
    ]) {
      const { send, passed } = guarded(late as unknown as Guard);
      expect([(await failureOf(send(call))).code, passed()]).toEqual(['denied', 0]);
    }
    // Node reports unhandled rejections after the microtasks.
    await new Promise((resolve) => setImmediate(resolve));
    expect(unhandled).toEqual([]);
  });

  test('a guard that throws denies, and what it threw is not shown', async () => {
    const broken = new Error('password=hunter2');
    const error = await failureOf(
      guarded(() => {
        throw broken;
      }).send(call),
    );
    expect([error.code, error.cause]).toEqual(['denied', broken]);
    expect(JSON.stringify(error)).not.toContain('hunter2');
  });

  test.each([
    [undefined],
    [null],
    [true],
    [{}],
    [{ allow: 'yes' }],
    [{ allow: 1 }],
    [Promise.resolve({ allow: true })],
  ])('an answer that is not a clear yes denies: %o', (answer) => {
    expect(denial(() => [() => answer as never], request('a', 'b'))?.code).toBe('denied');
  });

  test('guards that cannot be read deny', () => {
    const guards = () => {
      throw new Error('reloading');
    };
    expect(denial(guards, request('a', 'b'))?.code).toBe('denied');
  });

  test('AC-H16 a denied spawn names the server', () => {
    const guard: Guard = ({ server }) => (server === 'permitted' ? { allow: true } : { allow: false, reason: 'no' });
    expect(denial(() => [guard], request('permitted', undefined, 'dev', 'spawn'))).toBeUndefined();
    expect(denial(() => [guard], request('blocked', undefined, 'dev', 'spawn'))?.message).toBe(
      "server 'blocked': spawn denied by allowlist: no",
    );
  });

  test('names from outside cannot control a terminal', () => {
    expect(denial(() => [no], request('a', '\u001b[2J\nok'))?.message).not.toMatch(/[\u0000-\u001f]/);
  });
});

describe('roles', () => {
  const roles = new Map([
    ['dev', patterns('github/get_issue', 'files/*', '*/ping')],
    ['admin', patterns('*/*')],
    ['locked', []],
    ['odd', patterns('git*/x', 'star/x*')],
  ]);
  const may = (role: string | undefined, server: string, tool: string | undefined, action?: GuardRequest['action']) =>
    roleGuard(roles, 'deny')(request(server, tool, role, action)).allow;

  test.each([
    ['an exact pattern allows its tool', 'dev', 'github', 'get_issue', true],
    ['an exact pattern allows no other tool', 'dev', 'github', 'delete_repo', false],
    ['a server’s star allows all of its tools', 'dev', 'files', 'anything', true],
    ['a star for the server allows the tool everywhere', 'dev', 'elsewhere', 'ping', true],
    ['names of tools are case-sensitive', 'dev', 'github', 'Get_issue', false],
    ['names of servers are case-sensitive', 'dev', 'GitHub', 'get_issue', false],
    ['names of roles are case-sensitive', 'Dev', 'github', 'get_issue', false],
    ['space around a name is part of it', 'dev', 'github', 'get_issue ', false],
    ['a pattern does not match a longer name', 'dev', 'github', 'get_issue2', false],
    ['an empty tool name is denied', 'dev', 'github', '', false],
    ['two stars allow everything', 'admin', '__proto__', 'constructor', true],
    ['an empty list denies everything', 'locked', 'files', 'read', false],
    ['a star inside a name is an ordinary letter', 'odd', 'github', 'x', false],
    ['a server name with a star allows the server of that name', 'odd', 'git*', 'x', true],
    ['a star inside a tool name is an ordinary letter', 'odd', 'star', 'xy', false],
    ['names of inherited object members are no roles', '__proto__', 'files', 'read', false],
    ['constructor is no role either', 'constructor', 'files', 'read', false],
  ])('%s', (_name, role, server, tool, allowed) => {
    expect(may(role, server, tool)).toBe(allowed);
  });

  test('without a role, or with one that is not listed, the default decides', () => {
    expect([may(undefined, 'files', 'read'), may('guest', 'files', 'read')]).toEqual([false, false]);
    const open = roleGuard(roles, 'allow');
    expect(open(request('files', 'read')).allow).toBe(true);
    expect(open(request('files', 'read', 'guest')).allow).toBe(true);
    expect(open(request('files', 'read', 'locked')).allow).toBe(false);
  });

  test('one allowed tool is enough to list its server, and only a whole server can be spawned', () => {
    expect(may('dev', 'github', undefined, 'list')).toBe(true);
    expect(may('locked', 'github', undefined, 'list')).toBe(false);
    expect(may('dev', 'github', undefined, 'spawn')).toBe(false);
    expect(may('dev', 'files', undefined, 'spawn')).toBe(true);
    expect(may('admin', 'new', undefined, 'spawn')).toBe(true);
  });

  test('without roles, a caller without a role passes and one with a role learns what to configure', () => {
    expect(denial(() => [noRoles], request('files', 'read'))).toBeUndefined();
    const error = denial(() => [noRoles], request('files', 'read', 'dev'));
    expect([error?.code, error?.message, error?.hint]).toEqual([
      'denied',
      "server 'files': call of files/read denied by allowlist: role 'dev' is not listed, no roles are configured",
      'list it under roles in the configuration, or set unlistedRole to "allow"',
    ]);
  });

  test('later changes of the rules object do not affect the guard', () => {
    const live = new Map([['dev', patterns('a/b')]]);
    const guard = roleGuard(live, 'deny');
    live.get('dev')?.push(...patterns('*/*'));
    expect(guard(request('x', 'y', 'dev')).allow).toBe(false);
  });
});

describe('X10 against an oracle with another representation of patterns', () => {
  // р, о and е are Cyrillic; ﬁ, K and ı fold to other letters; the last ones are invisible.
  const servers = ['files', 'Files', 'ﬁles', 'gitһub', 'github', 'git*', '*', '__proto__', 'constructor', '..', 'file'];
  const tools = [
    ...['read', 'Read', 'rеad', 'read ', 'read\u200b', 'read\0', 're', 'K', 'k', 'K', 'ı', 'i', '*', 'r*', '**'],
    ...['__proto__', 'toString', '..', '../read', 'a/b', 'b', '/', './read', 'é', 'e\u0301', 'x'.repeat(300)],
  ];
  const roleNames = ['dev', 'Dev', 'dеv', '__proto__', 'admin', ''];

  /** Only four spellings of a pattern can allow a request. */
  const oracle = (texts: readonly string[] | undefined, unlisted: string, server: string, tool: string) =>
    texts
      ? [`${server}/${tool}`, `${server}/*`, `*/${tool}`, '*/*'].some((spelling) => texts.includes(spelling))
      : unlisted === 'allow';

  const cases = Number(process.env.POLICY_CASES ?? 200_000);

  test(`${cases.toLocaleString('en')} random cases agree`, () => {
    const seed = Number(process.env.SEED ?? 20_260_801);
    const random = seededRandom(seed);
    const pick = <T>(from: readonly T[]): T => from[randomInt(random, 0, from.length - 1)] as T;
    let allowed = 0;
    for (let round = 0; round < cases / 100; round++) {
      const roles = new Map<string, string[]>();
      for (const role of roleNames) {
        const count = randomInt(random, -1, 4);
        if (count < 0) continue;
        const texts = Array.from({ length: count }, () => `${pick(servers)}/${pick(tools)}`);
        roles.set(role, texts);
      }
      const unlisted = random() < 0.5 ? 'deny' : 'allow';
      const guard = roleGuard(new Map([...roles].map(([role, texts]) => [role, patterns(...texts)])), unlisted);
      for (let i = 0; i < 100; i++) {
        const role = random() < 0.1 ? undefined : pick(roleNames);
        const texts = role === undefined ? undefined : roles.get(role);
        const wanted = texts && random() < 0.3 ? pick([...texts, 'a/b']) : `${pick(servers)}/${pick(tools)}`;
        const slash = wanted.indexOf('/');
        const server = wanted.slice(0, slash);
        const tool = wanted.slice(slash + 1);
        const expected = oracle(texts, unlisted, server, tool);
        if (guard(request(server, tool, role)).allow !== expected) {
          expect.fail(`seed ${seed}: role ${role}, ${JSON.stringify([server, tool, texts, unlisted])}`);
        }
        if (expected) allowed++;
      }
    }
    expect(allowed).toBeGreaterThan(cases / 10);
    expect(allowed).toBeLessThan((cases / 10) * 9);
  });
});
