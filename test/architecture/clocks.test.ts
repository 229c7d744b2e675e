/** `npm test` has no tests that pass only on an idle machine. */
import { describe, expect, test } from 'vitest';
import { elapsedTimeErrors, realClockErrors, realClockFiles } from './clock-rules.js';
import { filesBelow, readText } from './tree.js';

const testsBelow = (folder: string) =>
  Object.fromEntries(
    filesBelow(folder)
      .filter((file) => file.endsWith('.test.ts'))
      .map((file) => [file, readText(file)]),
  );

test('W23 tests of the short tier compare elapsed time only with limits for hangs', () => {
  const systemTests = testsBelow('test');
  expect(Object.keys(systemTests).length).toBeGreaterThan(100);
  expect(elapsedTimeErrors(systemTests)).toEqual([]);
});

test('W23 no unit test reads the real clock', () => {
  const unitTests = testsBelow('src');
  expect(Object.keys(unitTests).length).toBeGreaterThan(100);
  expect(realClockErrors(unitTests)).toEqual([]);
});

describe('the checker', () => {
  test.each([
    ['expect(performance.now() - startMs).toBeLessThan(300);', 1],
    ['expect(Date.now() - start).toBeLessThanOrEqual(limit);', 1],
    ['expect(figures.spawnLateMs.p99).toBeLessThanOrEqual(addedMs + figures.loopDelayMs.max);', 1],
    ['expect(Math.min(tookMs, otherMs), "why").toBeLessThan(9_999);', 1],
    ["await until(() => isGone, 'it is gone', 2_000);", 1],
    ["await eventually('it is gone', () => isGone, 10_000);", 0],
    ["await eventually('it is gone', () => isGone);", 0],
    ['expect(tookMs).toBeLessThan(timeLimitMs(300));', 0],
    ['expect(tookMs).toBeLessThan(20 * 30_000);', 0],
    ['expect(tookMs).toBeGreaterThan(300);', 0],
    ['expect(row.nextProbeInMs).toBeLessThanOrEqual(60);', 0],
    ['expect(details.retryAfterMs).toBeLessThanOrEqual(waitMs);', 0],
    ['expect(afterMs).toBeLessThan(300);', 1],
    ['expect(latencies.p99).toBeLessThan(300);', 1],
    ['expect(Math.max(...durations)).toBeLessThan(300);', 1],
    ['expect(calls).toBeLessThan(300);', 0],
  ])('judges %s', (text, errors) => {
    expect(elapsedTimeErrors({ 'a.test.ts': `${text}\nconst atMs = 1;` })).toHaveLength(errors);
  });

  test('sees readings of the real clock', () => {
    expect(realClockErrors({ 'a.test.ts': 'const at = performance.now();', 'b.test.ts': 'clock.nowMs();' })).toEqual([
      'a.test.ts reads the real clock',
    ]);
  });

  test.each([
    ["await createHost({ mcpServers: { a: { timeouts: { call: '1s' } } } });", true],
    ["const host = await createHost(config); host.call('a', 'x', {}, { deadlineMs: 500 });", true],
    ['await createHost(config, { clock: new FakeClock() }); call({ deadlineMs: 500 });', false],
    ['await createHost(config);', false],
    ['const atMs = uptime() * 1_000;', true],
  ])('sees comparisons that depend on the load of the machine: %s', (text, isRepeated) => {
    expect(realClockFiles({ 'a.test.ts': text })).toEqual(isRepeated ? ['a.test.ts'] : []);
  });
});
