import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { failureOf } from '../../test/fakes/policy-call.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { isCardSource, ServerCards } from './server-card.js';

type Answer = string | HostError | Promise<string>;

function open(answer: (url: string) => Answer = () => '{}') {
  const clock = new FakeClock();
  const asked: string[] = [];
  const cards = new ServerCards({
    clock,
    random: Math.random,
    clean: (text) => text.replace('hunter2', '***'),
    fetch: async ({ url }) => {
      asked.push(url);
      const given = await answer(url);
      if (given instanceof HostError) throw given;
      return Buffer.from(given);
    },
  });
  return { clock, cards, asked };
}

const refused = (httpStatus: number) => new HostError('connect_failed', 'no', { httpStatus });
const url = 'https://example.com/mcp';

test.each([
  ['https://example.com', true],
  ['http://example.com/card', true],
  ['./card', true],
  ['C:\\card', true],
  ['card.json', true],
  ['files', false],
  ['files.jsonx', false],
])('whether %s is the URL or path of a card: %s', (text, is) => {
  expect(isCardSource(text)).toBe(is);
});

describe('the content of a card', () => {
  test('tools are objects with a name, stored as they are written', async () => {
    const tools =
      '[{"name":"a","n":12345678901234567890},{"name":""},{"title":"b"},"dynamic",null,{"name":5},{"name":"c"}]';
    const { cards } = open(() => `\ufeff {"name":"x","description":"d","tools":${tools}}`);
    const card = await cards.read(url);
    expect([card.name, card.description]).toEqual(['x', 'd']);
    expect(card.tools.map(({ key, raw }) => [key, raw.toString()])).toEqual([
      ['a', '{"name":"a","n":12345678901234567890}'],
      ['c', '{"name":"c"}'],
    ]);
  });

  test.each(['{}', '{"tools":"dynamic"}', '{"tools":{}}', '{"tools":[[]]}'])('%s has no tools', async (text) => {
    expect((await open(() => text).cards.read(url)).tools).toEqual([]);
  });

  test('the name may be in serverInfo', async () => {
    expect((await open(() => '{"serverInfo":{"name":"x"}}').cards.read(url)).name).toBe('x');
  });

  test('is copied for each caller', async () => {
    const { cards } = open(() => '{"tools":[{"name":"a"}]}');
    const card = await cards.read(url);
    card.raw.fill(0);
    card.tools[0]?.raw.fill(0);
    expect((await cards.read(url)).tools[0]?.raw.toString()).toBe('{"name":"a"}');
  });
});

describe('a source', () => {
  test('is read once for all concurrent callers, and again after five minutes', async () => {
    const { cards, asked, clock } = open();
    await Promise.all(Array.from({ length: 100 }, () => cards.read(url)));
    clock.advance(5 * 60_000 - 1);
    await cards.read(url);
    expect(asked).toEqual([url]);
    clock.advance(1);
    await cards.read(url);
    expect(asked).toEqual([url, url]);
  });

  test('with another spelling is another source', async () => {
    const { cards, asked } = open();
    await cards.read(url);
    await cards.read(`${url}?`);
    expect(asked.length).toBe(2);
  });

  test('that failed is read again', async () => {
    let status = 500;
    const { cards } = open(() => (status === 200 ? '{"name":"x"}' : refused(status)));
    await failureOf(cards.read(url));
    status = 200;
    expect((await cards.read(url)).name).toBe('x');
  });

  test('that has no card is tried once more at the well-known place below it', async () => {
    const { cards, asked } = open((at) => (at.includes('.well-known') ? '{"name":"x"}' : refused(404)));
    expect((await cards.read('https://example.com/mcp/?key=1')).name).toBe('x');
    expect(asked).toEqual(['https://example.com/mcp/?key=1', 'https://example.com/mcp/.well-known/mcp-card?key=1']);
  });

  test('that names a well-known place itself is tried once', async () => {
    const { cards, asked } = open(() => refused(404));
    await failureOf(cards.read('https://example.com/.well-known/x.json'));
    expect(asked.length).toBe(1);
  });

  test('beyond the bound of concurrent reads is refused', async () => {
    const { cards } = open(() => new Promise<string>(() => {}));
    for (let i = 0; i < 64; i++) void cards.read(`${url}/${i}`);
    expect((await failureOf(cards.read(`${url}/64`))).code).toBe('overloaded');
  });
});

describe('errors have three kinds', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-card-'));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  test('http: with its status, and without the query of the URL', async () => {
    const error = await failureOf(open(() => refused(503)).cards.read('https://example.com/hunter2?token=abc'));
    expect(error.details).toMatchObject({ reason: 'http', httpStatus: 503 });
    expect(error.message).toBe(
      "the server card 'https://example.com/***/.well-known/mcp-card' could not be fetched (status 503)",
    );
  });

  test('parse: not JSON, or not an object', async () => {
    for (const text of ['<html>', '[]', '', '{}{}'])
      expect((await failureOf(open(() => text).cards.read(url))).details.reason).toBe('parse');
  });

  test('io: a missing file, a folder, or a file that is too large', async () => {
    const { cards, asked } = open();
    const large = path.join(folder, 'large.json');
    writeFileSync(large, `{"x":"${'x'.repeat(1024 * 1024)}"}`);
    const wrong = [path.join(folder, 'none.json'), folder, large];
    for (const file of wrong) expect((await failureOf(cards.read(file))).details.reason).toBe('io');
    expect(asked).toEqual([]);
  });

  test('a file that exists causes no error', async () => {
    const file = path.join(folder, 'card.json');
    writeFileSync(file, '{"name":"x","tools":[{"name":"a"}]}');
    expect((await open().cards.read(file)).tools.map(({ key }) => key)).toEqual(['a']);
  });
});
