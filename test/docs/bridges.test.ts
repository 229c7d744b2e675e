/** The limits in docs/bridges.md equal those of the code. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { inputRequestsMax, inputRequiredBytesMax } from '../../src/gateway/bridge/input-required.js';
import { askLimitMs, asksMax, roundsMax } from '../../src/gateway/eras/legacy/bridge.js';
import {
  afterRefusalMs,
  answerBytesMax,
  gatherMs,
  parkedLifeMs,
  parkedMax,
  parkedPerPrincipalMax,
} from '../../src/gateway/eras/modern/parked-call.js';
import { stateLifeMs } from '../../src/gateway/eras/modern/parked-state.js';
import { askTogetherMs, queuedRequestMs, queuedRequestsMax, recentEndMs } from '../../src/wire/attribution.js';
import { notifiedMs, unnotifiedMs } from '../../src/wire/pending-requests.js';

const text = readFileSync(new URL('../../docs/bridges.md', import.meta.url), 'utf8');
const MiB = 1024 * 1024;
const minuteMs = 60_000;

/** The right cell of the row in the table of limits whose left cell begins with this text. */
const limit = (start: string): string => {
  const row = text.split('\n').find((line) => line.startsWith(`| ${start}`));
  return row?.split('|')[2]?.trim() ?? '';
};

test.each([
  ['questions of one call at once', `${inputRequestsMax}`],
  ['questions of one call at once', `${asksMax}`],
  ['`input_required` result of a modern server', `${inputRequiredBytesMax / MiB} MiB`],
  ['one question of a legacy server to a modern client', `${inputRequiredBytesMax / MiB} MiB`],
  ['time of a legacy client', `${askLimitMs / minuteMs} min`],
  ['rounds of questions', `${roundsMax}`],
  ['time of a modern client', `${parkedLifeMs / minuteMs} min, then the call is cancelled`],
  ['parked calls', `${parkedMax}, and ${parkedPerPrincipalMax} of one caller; then \`overloaded\``],
  ['answers stored', `${answerBytesMax / MiB} MiB, all together`],
  [
    'refusal of questions with a doubtful cause',
    `${notifiedMs / 1_000} s, or ${unnotifiedMs / minuteMs} min if the cancellation was not delivered`,
  ],
  ['the same, after a request of another client', `${recentEndMs / 1_000} s`],
  ['questions that wait', `${queuedRequestsMax}, for ${queuedRequestMs / 1_000} s`],
  ['time in which', `${gatherMs} ms`],
  ['the same time after Hostler refused', `${afterRefusalMs} ms`],
])('%s: %s', (start, words) => {
  expect(limit(start)).toBe(words);
});

test('a request counts as waiting for the stated time', () => {
  expect(text).toContain(`open for more than ${askTogetherMs} ms`);
});

test('a sealed state is valid for the stated time', () => {
  expect(stateLifeMs).toBe(10 * minuteMs);
  expect(text).toContain('valid for ten minutes');
});
