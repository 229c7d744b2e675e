/**
 * F1: hostile frames never crash or stall the wire, and the result never depends on how the bytes are cut into chunks.
 */
import { isUtf8 } from 'node:buffer';
import { expect, test } from 'vitest';
import { randomInt, seededRandom } from '../../src/kernel/random.js';
import { Envelope, MessageDecoder, newCounters, scanEnvelope } from '../../src/wire/envelope.js';
import { LineReader } from '../../src/wire/line-reader.js';
import { countFor, timeLimitMs } from '../tier.js';
import { spoiledFrame } from './frames.js';

const framesTotal = Number(process.env.F1_FRAMES ?? 150_000);
const framesPerBatch = 500;
/** Tries for one frame. The best counts: a garbage collection or another process may slow down one try, not all. */
const tries = Array.from({ length: countFor(1, 3) });

function open() {
  const messages: string[] = [];
  const counters = newCounters();
  const decoder = new MessageDecoder(counters);
  const reader = new LineReader(
    8 * 1024 * 1024,
    (bytes, start, end) =>
      decoder.decode(bytes, start, end, (envelope) =>
        messages.push(
          `${envelope.kind} ${envelope.idText()} ${envelope.method()} ${envelope.payload()?.toString('latin1')}`,
        ),
      ),
    () => messages.push('too long'),
  );
  return { messages, counters, reader };
}

function again(frame: Buffer): number {
  const tookMs = tries.map(() => {
    const { reader } = open();
    const startedMs = performance.now();
    reader.push(frame);
    reader.end();
    return performance.now() - startedMs;
  });
  return Math.min(...tookMs);
}

/** What `JSON.parse` makes of the same bytes must agree with what the scanner accepted or refused. */
function disagreement(frame: Buffer, envelope: Envelope): string | undefined {
  const fault = scanEnvelope(frame, 0, frame.length, envelope);
  let parsed: Record<string, unknown> | undefined;
  try {
    parsed = JSON.parse(frame.toString('utf8')) as Record<string, unknown>;
  } catch {
    return fault === undefined ? 'accepted what is not JSON' : undefined;
  }
  if (fault === 'not_json') {
    const isObject = typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed);
    return isObject ? 'refused JSON as not JSON' : undefined;
  }
  if (fault !== undefined) return undefined;
  if (!isUtf8(frame)) return undefined;
  if (parsed.jsonrpc !== '2.0') return 'accepted a message of no version';
  const member = { request: 'params', notification: 'params', result: 'result', error: 'error' }[envelope.kind];
  const payload = envelope.payload()?.toString();
  if (JSON.stringify(payload === undefined ? undefined : JSON.parse(payload)) !== JSON.stringify(parsed[member]))
    return 'payload differs';
  if ((parsed.method ?? '') !== envelope.method()) return 'method differs';
  const id = envelope.idText();
  return id !== undefined && JSON.parse(id) !== parsed.id ? 'id differs' : undefined;
}

test(`F1 frame fuzz: ${framesTotal} frames, 0 crashes, 0 differences, no frame that stalls`, {
  timeout: 300_000,
}, () => {
  const seed = Number(process.env.SEED ?? 20261115);
  const random = seededRandom(seed);
  const envelope = new Envelope();
  const differences: string[] = [];
  let frames = 0;
  let accepted = 0;
  let slowestMs = 0;

  while (frames < framesTotal) {
    const batch: Buffer[] = [];
    for (let i = 0; i < framesPerBatch; i++) {
      const frame = spoiledFrame(random);
      const found = disagreement(frame, envelope);
      if (found) differences.push(`${found}: ${frame.toString('latin1')}`);
      batch.push(frame, Buffer.from('\n'));
    }
    frames += framesPerBatch;
    const bytes = Buffer.concat(batch);
    const whole = open();
    // Frame by frame, so that one slow frame shows and does not vanish in a mean.
    for (let at = 0; at < batch.length; at += 2) {
      const startedMs = performance.now();
      whole.reader.push(batch[at] as Buffer);
      whole.reader.push(batch[at + 1] as Buffer);
      const tookMs = performance.now() - startedMs;
      if (tookMs > slowestMs) slowestMs = Math.max(slowestMs, Math.min(tookMs, again(batch[at] as Buffer)));
    }
    const cut = open();
    for (let at = 0; at < bytes.length; ) {
      const to = Math.min(bytes.length, at + randomInt(random, 1, 4_000));
      cut.reader.push(bytes.subarray(at, to));
      at = to;
    }
    accepted += whole.messages.length;
    if (whole.messages.join('\n') !== cut.messages.join('\n'))
      differences.push(`cutting changed batch ending at ${frames}`);
    expect(cut.counters).toEqual(whole.counters);
  }
  console.log(
    `F1 seed ${seed}: ${frames} frames, ${accepted} messages accepted, slowest frame ${slowestMs.toFixed(2)} ms`,
  );
  expect(differences).toEqual([]);
  expect(accepted).toBeGreaterThan(framesTotal * 0.2);
  expect(slowestMs).toBeLessThan(timeLimitMs(50));
});

test('F1 one frame of 8 MiB in the shapes that could be slow is refused or read without a stall', () => {
  const bytes = 8 * 1024 * 1024 - 100;
  const shapes = {
    brackets: Buffer.from('['.repeat(bytes)),
    keys: Buffer.from(`{${'"a":{'.repeat(bytes / 5 - 1)}`),
    escapes: Buffer.from(`{"jsonrpc":"2.0","id":1,"result":"${'\\"'.repeat(bytes / 2 - 40)}"}`),
    spaces: Buffer.from(`{"jsonrpc":"2.0","id":1,"result":${' '.repeat(bytes - 60)}1}`),
    topLevelKeys: Buffer.from(`{"jsonrpc":"2.0"${',"x":1'.repeat(bytes / 6 - 10)},"id":1,"result":1}`),
    combiningKey: Buffer.from(`{"jsonrpc":"2.0","${'\u0300\u0316'.repeat(bytes / 4 - 20)}":1,"id":1,"result":1}`),
    batch: Buffer.from(`[${'1,'.repeat(bytes / 2 - 10)}1]`),
    disguisedKeys: Buffer.from(`{"jsonrpc":"2.0"${',"\u00e9":1'.repeat(bytes / 7 - 10)},"id":1,"result":1}`),
  };
  const stalled: string[] = [];
  for (const [name, frame] of Object.entries(shapes)) {
    const tookMs = Math.min(
      ...tries.map(() => {
        const { reader } = open();
        const startedMs = performance.now();
        reader.push(frame);
        reader.end();
        return performance.now() - startedMs;
      }),
    );
    console.log(`F1 8 MiB of ${name}: ${tookMs.toFixed(1)} ms`);
    if (tookMs > timeLimitMs(250)) stalled.push(`${name} ${tookMs}`);
  }
  expect(stalled).toEqual([]);
});
