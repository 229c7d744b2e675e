import { describe, expect, test } from 'vitest';
import { fakePrincipal } from '../../test/fakes/policy-call.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { randomInt, seededRandom } from '../kernel/random.js';
import { type CachedCall, type CachePlan, callCachePlan, type Question, ResponseCache } from './cache.js';

const ask = (part: Partial<Question> & { hash?: string } = {}): Question => ({
  server: 'github',
  subject: 'get_issue',
  fingerprint: 'f1',
  principal: fakePrincipal('ann', 'dev'),
  argumentsKey: () => part.hash ?? 'h1',
  ...part,
});
const kept = (bytes: Buffer): CachedCall => ({ bytes, era: 'modern' });
const own = (ttlMs = 100) => ({ ttlMs, isPublic: false });
const forAll = (ttlMs = 100) => ({ ttlMs, isPublic: true });

function setUp(plan: Partial<CachePlan<CachedCall>> = {}) {
  const clock = new FakeClock();
  const cache = new ResponseCache(clock, { ...callCachePlan, ...plan });
  const put = (question: Question, text = 'answer', hint = own()) =>
    cache.put(question, kept(Buffer.from(text)), hint, cache.epochOf(question.server, question.subject));
  const get = (question: Question) => cache.get(question)?.bytes.toString();
  return { clock, cache, put, get };
}

test('AC-H6 H-CCH-3 an answer is cached until its lifetime ends, and not at that moment', () => {
  const { clock, cache, put, get } = setUp();
  put(ask());
  clock.advance(99);
  expect(get(ask())).toBe('answer');
  clock.advance(1);
  expect(get(ask())).toBeUndefined();
  expect(cache.stats()).toEqual({ hits: 1, misses: 1, entries: 0, bytes: 0 });
});

test('D-21 the lifetime of an answer begins with its arrival', () => {
  const { clock, cache, get } = setUp();
  const epoch = cache.epochOf('github', 'get_issue');
  clock.advance(10_000);
  cache.put(ask(), kept(Buffer.from('answer')), own(5), epoch);
  clock.advance(4);
  expect(get(ask())).toBe('answer');
});

test('a ttl is at most a day', () => {
  const { clock, put, get } = setUp();
  put(ask(), 'answer', own(Number.MAX_SAFE_INTEGER));
  clock.advance(24 * 3_600_000 - 1);
  expect(get(ask())).toBe('answer');
  clock.advance(1);
  expect(get(ask())).toBeUndefined();
});

describe('D-20 the owner of an answer', () => {
  const bob = fakePrincipal('bob', 'dev');

  test('a private answer is a miss for any other principal', () => {
    const { put, get } = setUp();
    put(ask());
    expect(get(ask())).toBe('answer');
    expect(get(ask({ principal: bob }))).toBeUndefined();
  });

  test('a public answer is a hit for every principal', () => {
    const { put, get } = setUp();
    put(ask(), 'answer', forAll());
    expect(get(ask({ principal: bob }))).toBe('answer');
  });

  test('a private answer of a principal named public is not public', () => {
    const { put, get } = setUp();
    put(ask({ principal: fakePrincipal('public') }));
    expect(get(ask({ principal: bob }))).toBeUndefined();
  });

  test('X9 the same principal with another role counts as another principal', () => {
    const { put, get } = setUp();
    put(ask());
    expect(get(ask({ principal: fakePrincipal('ann', 'admin') }))).toBeUndefined();
    expect(get(ask({ principal: fakePrincipal('ann') }))).toBeUndefined();
  });

  test('a principal’s own answer has priority over the public one', () => {
    const { put, get } = setUp();
    put(ask(), 'own');
    put(ask(), 'for all', forAll());
    expect([get(ask()), get(ask({ principal: bob }))]).toEqual(['own', 'for all']);
  });

  test.each([
    ['server', { server: 'gitlab' }],
    ['tool', { subject: 'get_issues' }],
    ['configuration or pin', { fingerprint: 'f2' }],
    ['arguments', { hash: 'h2' }],
  ])('a call that differs in its %s is another question', (_name, part) => {
    const { put, get } = setUp();
    put(ask());
    put(ask(), 'answer', forAll());
    expect(get(ask(part))).toBeUndefined();
  });

  const cases = Number(process.env.POLICY_CASES ?? 200_000);

  test(`X9 of ${cases.toLocaleString('en')} random questions none gets an answer to another one`, () => {
    const random = seededRandom(Number(process.env.SEED ?? 9));
    const { put, cache, clock } = setUp();
    const pick = (of: readonly string[]) => of[randomInt(random, 0, of.length - 1)] as string;
    let hits = 0;
    for (let i = 0; i < cases; i++) {
      const [server, tool, id, fingerprint] = [
        pick(['a', 'b', 'a:']),
        pick(['t', 'tt', '1:t']),
        pick(['p', 'q', '1:p']),
        pick(['', 'f']),
      ];
      const hash = pick(['h', 'hh', 'h1:', 'x']);
      const question = ask({
        server,
        subject: tool,
        fingerprint,
        principal: fakePrincipal(id, random() < 0.5 ? 'r' : undefined),
        hash,
      });
      const label = JSON.stringify([server, tool, fingerprint, hash]);
      const isPublic = random() < 0.3;
      const found = cache.get(question)?.bytes.toString();
      if (found !== undefined) {
        hits++;
        const mine = `${label} ${id} ${question.principal.role}`;
        if (found !== mine && found !== `${label} public`) expect.fail(`${found} for ${mine}`);
      }
      if (random() < 0.5) {
        put(question, isPublic ? `${label} public` : `${label} ${id} ${question.principal.role}`, {
          ttlMs: 50,
          isPublic,
        });
      }
      if (random() < 0.1) clock.advance(1);
      if (random() < 0.001) cache.drop(server);
    }
    expect(hits).toBeGreaterThan(10_000);
  });
});

test('D-64 H-CCH-5 no caller can change the answer for another', () => {
  const { cache, get } = setUp();
  const given = Buffer.from('answer');
  cache.put(ask(), kept(given), own(), cache.epochOf('github', 'get_issue'));
  given.fill('x');
  cache.get(ask())?.bytes.fill('y');
  expect(get(ask())).toBe('answer');
});

describe('D-22 bounds', () => {
  const nth = (n: number, part: Partial<Question> = {}) => ask({ hash: `h${n}`, ...part });

  test('replacing one of 64 answers evicts none', () => {
    const { cache, put, get } = setUp();
    for (let n = 0; n < 64; n++) put(nth(n), `${n}`);
    put(nth(5), 'new');
    expect(cache.stats().entries).toBe(64);
    expect([get(nth(0)), get(nth(5)), get(nth(63))]).toEqual(['0', 'new', '63']);
  });

  test('H-CCH-4 the 65th answer replaces the oldest one', () => {
    const { cache, put, get } = setUp();
    for (let n = 0; n < 64; n++) put(nth(n), `${n}`);
    put(nth(0), 'again');
    put(nth(64), '64');
    expect([get(nth(0)), get(nth(1)), get(nth(2)), get(nth(64))]).toEqual(['again', undefined, '2', '64']);
    expect(cache.entriesOf('github')).toBe(64);
  });

  test('expired entries are removed before old ones', () => {
    const { clock, put, get } = setUp();
    for (let n = 0; n < 64; n++) put(nth(n), `${n}`, own(n === 40 ? 5 : 1_000));
    clock.advance(5);
    put(nth(64), '64');
    expect([get(nth(0)), get(nth(40)), get(nth(64))]).toEqual(['0', undefined, '64']);
  });

  test('another tool has its own bound', () => {
    const { cache, put } = setUp();
    for (let n = 0; n < 64; n++) put(nth(n));
    for (let n = 0; n < 64; n++) put(nth(n, { subject: 'list_issues' }));
    expect([cache.entriesOf('github'), cache.entriesOf('gitlab')]).toEqual([128, 0]);
  });

  test('an answer over 1 MiB is not kept', () => {
    const { put, get } = setUp();
    expect(put(nth(1), 'x'.repeat(1_048_576))).toBe(true);
    expect(put(nth(2), 'x'.repeat(1_048_577))).toBe(false);
    expect([get(nth(1))?.length, get(nth(2))]).toEqual([1_048_576, undefined]);
  });

  test('all answers together stay within the total, and the oldest of any tool is removed first', () => {
    const { cache, put, get } = setUp({ bytesMax: 10_000 });
    for (let n = 0; n < 20; n++) {
      put(nth(n, { subject: `t${n}` }), 'x'.repeat(1_500));
      expect(cache.stats().bytes).toBeLessThanOrEqual(10_000);
    }
    expect(cache.stats().entries).toBe(4);
    expect([get(nth(15, { subject: 't15' })), get(nth(16, { subject: 't16' }))?.length]).toEqual([undefined, 1_500]);
  });

  test('if the total is exceeded, expired entries are removed first', () => {
    const { clock, put, get } = setUp({ bytesMax: 10_000 });
    for (let n = 0; n < 4; n++) put(nth(n, { subject: `t${n}` }), 'x'.repeat(1_500), own(n === 2 ? 5 : 1_000));
    clock.advance(5);
    put(nth(4, { subject: 't4' }), 'x'.repeat(1_500));
    expect([get(nth(0, { subject: 't0' }))?.length, get(nth(2, { subject: 't2' }))]).toEqual([1_500, undefined]);
  });

  test('the counted bytes are correct after any mixture of stores, reads and drops', () => {
    const random = seededRandom(22);
    const { clock, cache, put } = setUp({ bytesMax: 50_000, entriesPerSubjectMax: 8 });
    for (let i = 0; i < 20_000; i++) {
      const question = nth(randomInt(random, 0, 20), {
        server: `s${randomInt(random, 0, 3)}`,
        subject: `t${randomInt(random, 0, 3)}`,
      });
      if (random() < 0.6) put(question, 'x'.repeat(randomInt(random, 0, 3_000)), own(randomInt(random, 1, 40)));
      else cache.get(question);
      if (random() < 0.2) clock.advance(1);
      if (random() < 0.01) cache.drop(question.server);
      expect(cache.stats().bytes).toBeLessThanOrEqual(50_000);
    }
    const servers = ['s0', 's1', 's2', 's3'];
    expect(servers.reduce((sum, server) => sum + cache.entriesOf(server), 0)).toBe(cache.stats().entries);
    for (const server of servers) cache.drop(server);
    expect(cache.stats()).toMatchObject({ entries: 0, bytes: 0 });
  });
});

describe('a dropped server', () => {
  test('H-CCH-7 loses its answers, and no other server does', () => {
    const { cache, put, get } = setUp();
    put(ask());
    put(ask({ server: 'gitlab' }));
    cache.drop('github');
    expect([get(ask()), get(ask({ server: 'gitlab' }))]).toEqual([undefined, 'answer']);
  });

  test('D-23 caches no answer to a request that was sent before the drop', () => {
    const { cache, get } = setUp();
    const before = cache.epochOf('github', 'get_issue');
    const elsewhere = cache.epochOf('gitlab', 'get_issue');
    cache.drop('github');
    expect(cache.put(ask(), kept(Buffer.from('late')), own(), before)).toBe(false);
    expect(get(ask())).toBeUndefined();
    expect(cache.put(ask({ server: 'gitlab' }), kept(Buffer.from('fine')), own(), elsewhere)).toBe(true);
  });

  test('stays known as dropped after thousands of others', () => {
    const { cache } = setUp();
    const before = cache.epochOf('github', 'get_issue');
    cache.drop('github');
    for (let i = 0; i < 3_000; i++) cache.drop(`s${i}`);
    expect(cache.put(ask(), kept(Buffer.from('late')), own(), before)).toBe(false);
    expect(cache.put(ask(), kept(Buffer.from('new')), own(), cache.epochOf('github', 'get_issue'))).toBe(true);
  });
});

test('arguments are not hashed while there are no entries to compare them with', () => {
  const { cache, put } = setUp();
  let hashed = 0;
  const question = ask({
    argumentsKey: () => {
      hashed++;
      return 'h1';
    },
  });
  cache.get(question);
  expect(hashed).toBe(0);
  put(ask({ hash: 'other' }));
  cache.get(question);
  expect(hashed).toBe(1);
});

test('answers for arguments without a canonical form are never cached', () => {
  const { cache, put } = setUp();
  const odd = ask({ argumentsKey: () => undefined });
  expect(put(odd)).toBe(false);
  put(ask());
  expect(cache.get(odd)).toBeUndefined();
});
