/**
 * Twenty thousand lines of a client that is careless, confused or hostile, in chunks cut anywhere: nothing is thrown, every
 * line that needs an answer gets one, and every valid request among them gets its own.
 */
import { isUtf8 } from 'node:buffer';
import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import type { Exchange, Router } from '../../src/gateway/exchange.js';
import { createStdioIngress } from '../../src/gateway/stdio/stdio-ingress.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { type Random, randomInt, seededRandom } from '../../src/kernel/random.js';
import { embedder } from '../../src/policy/operation.js';
import { Envelope, scanEnvelope } from '../../src/wire/envelope.js';

const seed = 4_711;
const lines = 20_000;
const meta =
  '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}';

const samples = [
  `{"jsonrpc":"2.0","id":"m1","method":"tools/call","params":{"name":"x","arguments":{"a":[1,2,{"b":"\\u00e9é"}]},${meta}}}`,
  '{"jsonrpc":"2.0","id":"m2","method":"tools/list","params":{"cursor":"c"}}',
  '{"jsonrpc":"2.0","id":17,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{}}}}',
  '{"jsonrpc":"2.0","method":"notifications/initialized"}',
  '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"zzz"}}',
  '{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}',
  '{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}',
  '[{"jsonrpc":"2.0","id":"m3","method":"ping"}]',
  '{"jsonrpc":"2.0","id":null,"method":"x"}',
  '{"jsonrpc":"2.0","id":"m4","id":"m5","method":"x"}',
  '{"jsonrpc":"2.0","id":"m6","METHOD":"x","method":"y"}',
  '{"jsonrpc":"2.0","id":"m7","method":"x","params":[]}',
  '{"id":"m8","method":"x"}',
  `{"jsonrpc":"2.0","id":"m9","method":"x","params":{"a":${'['.repeat(200)}${']'.repeat(200)}}}`,
  'Content-Length: 42',
  'null',
  '"text"',
];
const pieces = [
  '{',
  '}',
  '[',
  ']',
  '"',
  ',',
  ':',
  '\\',
  '\\u00',
  '1e999',
  '-',
  'null',
  'true',
  '\0',
  '\ufeff',
  ' ',
  '\r',
  '"id":',
  '"method":"x"',
];

const pick = <T>(random: Random, from: readonly T[]): T => from[randomInt(random, 0, from.length - 1)] as T;

function mutated(random: Random): Buffer {
  const bytes = Buffer.from(pick(random, samples));
  const at = randomInt(random, 0, bytes.length);
  switch (randomInt(random, 0, 5)) {
    case 0:
      return bytes.subarray(0, at);
    case 1:
      return Buffer.concat([bytes.subarray(0, at), Buffer.from(pick(random, pieces)), bytes.subarray(at)]);
    case 2:
      return Buffer.concat([
        bytes.subarray(0, at),
        bytes.subarray(Math.min(bytes.length, at + randomInt(random, 1, 9))),
      ]);
    case 3: {
      const flipped = Buffer.from(bytes);
      if (at < flipped.length) flipped[at] = randomInt(random, 0, 255);
      return flipped;
    }
    case 4:
      return Buffer.concat([bytes, Buffer.from(pick(random, samples))]);
    default:
      return bytes;
  }
}

const envelope = new Envelope();
/** Classified by the scanner, which has its own fuzz test: invalid messages and requests require an answer. */
function wantsAnswer(line: Buffer): boolean {
  const text = line.toString('latin1').replace(/^\xef\xbb\xbf/, '');
  if (/^[ \t\r]*$/.test(text)) return false;
  const bytes = Buffer.from(text, 'latin1');
  if (scanEnvelope(bytes, 0, bytes.length, envelope) !== undefined) return true;
  return envelope.kind === 'request' || (envelope.hasHighBytes && !isUtf8(bytes));
}

test(`${lines} lines, seed ${seed}`, { timeout: 120_000 }, async () => {
  const random = seededRandom(seed);
  const waiting: Exchange[] = [];
  const router: Router = {
    hasEndpoint: () => true,
    mirroredArguments: () => undefined,
    opened: () => {},
    handle(exchange) {
      const fate = random();
      if (exchange.idText.startsWith('"w') || fate < 0.2) waiting.push(exchange);
      else if (fate < 0.6) exchange.succeed('{"params":', exchange.params ?? 'null', '}');
      else if (fate < 0.9) exchange.fail({ code: -1, message: 'no' });
      else throw new Error('planted');
    },
  };
  const problems: unknown[] = [];
  const input = new PassThrough({ highWaterMark: 1 << 30 });
  const output = new PassThrough();
  const said: { id?: unknown; result?: unknown; error?: { code: number } }[] = [];
  let rest = '';
  output.on('data', (chunk: Buffer) => {
    const texts = (rest + chunk.toString('latin1')).split('\n');
    rest = texts.pop() ?? '';
    for (const text of texts) said.push(JSON.parse(text));
  });
  const ingress = createStdioIngress({
    router,
    clock: new FakeClock(),
    input,
    output,
    principal: embedder,
    endpoint: { kind: 'all' },
    onProblem: (error) => problems.push(error),
  });

  let wanted = 0;
  let cancelled = 0;
  const honest: string[] = [];
  const given: string[] = [];
  let unsent = Buffer.alloc(0);
  for (let i = 0; i < lines; i++) {
    const kind = random();
    let line: Buffer;
    if (kind < 0.1) {
      honest.push(`h${i}`);
      line = Buffer.from(`{"jsonrpc":"2.0","id":"h${i}","method":"tools/call","params":{${meta}}}`);
    } else if (kind < 0.15) {
      // Cancelled later, or answered at the end.
      if (random() < 0.5) given.push(`w${i}`);
      line = Buffer.from(`{"jsonrpc":"2.0","id":"w${i}","method":"tools/call","params":{${meta}}}`);
    } else if (kind < 0.18 && given.length > 0) {
      cancelled++;
      line = Buffer.from(
        `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"${given.pop()}"}}`,
      );
    } else line = Buffer.from(mutated(random).filter((byte) => byte !== 0x0a));
    if (wantsAnswer(line)) wanted++;
    unsent = Buffer.concat([unsent, line, Buffer.from('\n')]);
    if (random() < 0.02 || i === lines - 1) {
      for (let from = 0; from < unsent.length; ) {
        const to = Math.min(unsent.length, from + randomInt(random, 1, 4_096));
        input.write(unsent.subarray(from, to));
        from = to;
      }
      unsent = Buffer.alloc(0);
      await new Promise((resolve) => setImmediate(resolve));
      // Requests with an id of "w..." wait until the end. All others are answered now.
      for (const exchange of waiting.splice(0)) {
        if (!exchange.idText.startsWith('"w') || i === lines - 1) exchange.succeed('{}');
        else waiting.push(exchange);
      }
    }
  }
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
  for (const exchange of waiting.splice(0)) exchange.succeed('{}');
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));

  expect(ingress.inFlight).toBe(0);
  expect(problems.every((problem) => (problem as Error).message === 'planted')).toBe(true);
  const answers = said.filter(({ result, error }) => result !== undefined || error !== undefined);
  expect(answers.length).toBe(said.length);
  expect([answers.length, cancelled > 100]).toEqual([wanted - cancelled, true]);
  const byId = new Map<unknown, number>();
  for (const { id } of answers) byId.set(id, (byId.get(id) ?? 0) + 1);
  expect(honest.length).toBeGreaterThan(1_500);
  expect(honest.filter((id) => byId.get(id) !== 1)).toEqual([]);
  const codes = new Set(answers.map(({ error }) => error?.code));
  for (const code of [undefined, -1, -32700, -32600, -32602, -32603]) expect(codes).toContain(code);
  await ingress.close();
});
