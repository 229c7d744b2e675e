import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { eventually } from '../../../test/eventually.js';
import { FakeClock } from '../../kernel/fake-clock.js';
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

/** Waits until the system reports a change, which can take any time. Then the quiet time of 200 ms passes. */
async function settled(): Promise<void> {
  await eventually('the system reports a change', () => clock.pendingTimers > 0);
  clock.advance(200);
}

test('a save is reported once, after a moment of quiet', async () => {
  writeFileSync(file, '{"a"');
  await eventually('the system reports a change', () => clock.pendingTimers > 0);
  clock.advance(199);
  expect(changes).toBe(0);
  clock.advance(1);
  expect(changes).toBe(1);
});

test('saves by renaming are reported too, each time', async () => {
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

test('a save of the same text and a deleted file are not reported', async () => {
  writeFileSync(file, '{}');
  await settled();
  unlinkSync(file);
  await settled();
  expect(changes).toBe(0);
});

test('a save that changes only the history of a client is no change, however large it is', async () => {
  const save = (history: string, command: string) =>
    writeFileSync(file, JSON.stringify({ projects: { p: [history] }, mcpServers: { a: { command } } }));
  save('', 'x');
  await settled();
  expect(changes).toBe(1);
  for (const bytes of [10, 5 * 2 ** 20]) {
    save('x'.repeat(bytes), 'x');
    await settled();
    expect(changes, `${bytes}`).toBe(1);
  }
  save('', 'y');
  await settled();
  expect(changes).toBe(2);
});

test('any change of the text of a file that is no configuration is reported', async () => {
  end();
  end = watchConfig({ file, clock, onChange: () => changes++, onProblem: () => {}, relevant: String });
  for (const [at, name] of ['a', 'b'].entries()) {
    writeFileSync(file, JSON.stringify({ confirmed: [name] }));
    await settled();
    expect(changes).toBe(at + 1);
  }
});

test('after the end of the watch nothing is reported', async () => {
  writeFileSync(file, '{"a":1}');
  await eventually('the system reports a change', () => clock.pendingTimers > 0);
  end();
  clock.advance(1_000);
  expect([changes, clock.pendingTimers]).toEqual([0, 0]);
});

describe('for any number of file events', () => {
  let stir: (name: string | null) => void;
  beforeEach(() => {
    end();
    const watchFolder = (_folder: string, onName: typeof stir) => {
      stir = onName;
      return { close: () => {} };
    };
    end = watchConfig({ file, clock, onChange: () => changes++, onProblem: () => {}, watchFolder });
  });

  test('changes of other files in the folder delay nothing', () => {
    stir('other');
    expect(clock.pendingTimers).toBe(0);
    writeFileSync(file, '{"a":1}');
    stir('hostler.json');
    for (let ms = 50; ms <= 200; ms += 50) {
      expect(changes).toBe(0);
      stir('other');
      clock.advance(50);
    }
    expect(changes).toBe(1);
  });

  test('a file that changes all the time is read two seconds after its first change', () => {
    for (let ms = 0; ms < 2_100; ms += 150) {
      expect(changes).toBe(0);
      writeFileSync(file, `{"a":${ms}}`);
      stir(ms === 0 ? null : 'hostler.json');
      clock.advance(150);
    }
    expect(changes).toBe(1);
  });
});

test('a save before the watch began is reported', async () => {
  end();
  end = watchConfig({ file, clock, since: '{"old":1}', onChange: () => changes++, onProblem: () => {} });
  clock.advance(200);
  expect(changes).toBe(1);
});

test('for a file behind a link, a change of the target is reported, and so is a change of the link itself', async () => {
  end();
  for (const name of ['one', 'two']) {
    mkdirSync(path.join(folder, name));
    writeFileSync(path.join(folder, name, 'real.json'), `"${name}"`);
  }
  // Like a mounted volume: the path of the link leads through another link, which is replaced.
  symlinkSync('one', path.join(folder, 'data'));
  unlinkSync(file);
  symlinkSync('data/real.json', file);
  end = watchConfig({ file, clock, onChange: () => changes++, onProblem: () => {} });
  const reported = (count: number) =>
    eventually(`change ${count}`, () => {
      if (clock.pendingTimers > 0) clock.advance(200);
      return changes === count;
    });
  writeFileSync(path.join(folder, 'one', 'real.json'), '"edited"');
  await reported(1);
  symlinkSync('two', path.join(folder, 'data.new'));
  renameSync(path.join(folder, 'data.new'), path.join(folder, 'data'));
  await reported(2);
  writeFileSync(path.join(folder, 'two', 'real.json'), '"edited too"');
  await reported(3);
});
