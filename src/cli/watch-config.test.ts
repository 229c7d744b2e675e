import { mkdtempSync, renameSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { eventually } from '../../test/eventually.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { watchConfig } from './watch-config.js';

let folder: string;
let file: string;
let clock: FakeClock;
let changes: number;
let end: () => void;
beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-watch-'));
  file = path.join(folder, 'hostler.json');
  writeFileSync(file, '{}');
  clock = new FakeClock();
  changes = 0;
  end = watchConfig({ file, clock, onChange: () => changes++, onProblem: (error) => expect(error).toBeUndefined() });
});
afterEach(() => {
  end();
  rmSync(folder, { recursive: true, force: true });
});

/** The system says that something in the folder changed when it likes; then the file has to stay quiet. */
async function settled(): Promise<void> {
  await eventually('the system tells', () => clock.pendingTimers > 0);
  clock.advance(200);
}

test('a save is told once, after a moment of quiet', async () => {
  writeFileSync(file, '{"a"');
  await eventually('the system tells', () => clock.pendingTimers > 0);
  clock.advance(199);
  expect(changes).toBe(0);
  clock.advance(1);
  expect(changes).toBe(1);
});

test('a save by renaming is one too, again and again', async () => {
  for (const text of ['{"a":1}', '{"a":2}']) {
    writeFileSync(`${file}.new`, text);
    renameSync(`${file}.new`, file);
    await settled();
  }
  await eventually('both were seen', () => {
    if (clock.pendingTimers > 0) clock.advance(200);
    return changes === 2;
  });
});

test('the same text, another file and a file that is gone are no change', async () => {
  writeFileSync(file, '{}');
  await settled();
  writeFileSync(path.join(folder, 'other'), 'x');
  await settled();
  unlinkSync(file);
  await settled();
  expect(changes).toBe(0);
});

test('after the end nothing is told', async () => {
  writeFileSync(file, '{"a":1}');
  await eventually('the system tells', () => clock.pendingTimers > 0);
  end();
  clock.advance(1_000);
  expect([changes, clock.pendingTimers]).toEqual([0, 0]);
});
