import { execFileSync, spawn } from 'node:child_process';
import { chmodSync, copyFileSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import Database from 'libsql';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { eventually } from '../../../test/eventually.js';
import type { PinRecord } from '../../policy/pin-records.js';
import type { ListedItem } from '../../session/lists.js';
import { pinKey } from '../server-origin.js';
import { type HistoryRow, historiesSchema, historiesTable, rowsMax } from './failure-histories.js';
import { type Listing, listingBytesMax, listingsMax, listingsTable } from './listings-table.js';
import { pinsTable } from './pins-table.js';
import { StateFile } from './state-file.js';
import { WriteBehind } from './write-behind.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

let folder: string;
let problems: unknown[];
const file = () => path.join(folder, 'state.db');
const open = () => StateFile.open(folder, (error) => problems.push(error));

beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-state-'));
  problems = [];
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** Runs statements on the file over another connection. */
function elsewhere(...statements: string[]): unknown[] {
  const database = new Database(file());
  try {
    let rows: unknown[] = [];
    for (const statement of statements) rows = database.prepare(statement).all();
    return rows;
  } finally {
    database.close();
  }
}
const versionOf = () => (elsewhere('PRAGMA user_version') as { user_version: number }[])[0]?.user_version;
const count = () => (elsewhere('SELECT count(*) AS n FROM histories') as { n: number }[])[0]?.n;

/** The file as the first version made it. Another process makes it, because libsql keeps the file open. */
function writeVersion(version: number, records: readonly PinRecord[] = [], more = ''): void {
  const sql = `
    PRAGMA journal_mode = WAL;
    CREATE TABLE pins (server TEXT PRIMARY KEY, records TEXT NOT NULL);
    CREATE TABLE manifests (server TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, tools TEXT NOT NULL);
    INSERT INTO pins VALUES ('files', '${JSON.stringify(records)}');
    INSERT INTO manifests VALUES ('files', 'f', '[["read","{}"]]');
    ${more}
    PRAGMA user_version = ${version};`;
  const script = "const d = new (require('libsql'))(process.argv[1]); d.exec(process.argv[2]); d.close()";
  execFileSync(process.execPath, ['-e', script, file(), sql]);
}

const row = (server: string, failedProbes = 1, fingerprint = 'f'): HistoryRow => ({
  server,
  fingerprint,
  record: {
    restartsAt: [1_767_225_600_000],
    unprovenStarts: 6,
    failedProbes,
    parked: { code: 'transport', message: 'said "no" \\ \u{1f600}\u0001', at: 1_767_225_600_001 },
  },
});
const forgiven = (server: string): HistoryRow => ({ server, fingerprint: 'f', record: undefined });

const pinned = (name: string): PinRecord => ({
  name,
  approved: { hash: 'h', bodyHash: 'b', raw: '{}', at: '2026-01-01T00:00:00.000Z' },
  pending: undefined,
  firstHash: undefined,
  renamedFrom: undefined,
  isAmbiguous: false,
  isListed: true,
});

const listing = (items: readonly ListedItem[]): Listing => ({
  facts: undefined,
  lists: new Map([['tools/list', { items, ttlMs: 0, isPublic: false }]]),
});
const toolsOf = ({ lists }: Listing) => lists.get('tools/list')?.items ?? [];

describe('versions of the file', () => {
  test('the pins of version 1 are taken over; its lists are read from the servers again', () => {
    writeVersion(1);
    const { pins, listings, histories } = open();
    expect(problems).toEqual([]);
    expect(pins.load('files')).toEqual([]);
    expect(toolsOf(listings.load('files', 'f'))).toEqual([]);
    histories.save([row('files')]);
    expect(histories.load('files', 'f')).toEqual(row('files').record);
    expect(versionOf()).toBe(7);
  });

  test('a new file begins at version 7', () => {
    open();
    expect([versionOf(), problems]).toEqual([7, []]);
  });

  test('tables of an older file whose version was never written are completed', () => {
    writeVersion(0);
    const { pins } = open();
    pins.save('files', [pinned('read')]);
    expect([pins.loadStatuses('files')?.get('read'), versionOf(), problems]).toEqual(['approved', 7, []]);
  });

  test('pins of version 3 get their statuses, and are removed from their old table', () => {
    writeVersion(3, [pinned('read')]);
    const { pins } = open();
    expect(pins.loadStatuses('files')).toEqual(new Map([['read', 'approved']]));
    expect(pins.load('files')).toEqual([pinned('read')]);
    expect(elsewhere("SELECT name FROM sqlite_master WHERE name IN ('pins', 'manifests')")).toEqual([]);
  });

  test.each([
    ['is no JSON', '[{'],
    ['is no list', '{"name":"write"}'],
    ['has a record without a name', '[{"isAmbiguous":false,"isListed":true}]'],
    ['has a version without a hash', '[{"name":"write","approved":{"at":""},"isAmbiguous":false,"isListed":true}]'],
  ])('of old pins a row that %s is set aside and reported, and all others are taken over', (_title, text) => {
    const files = JSON.stringify([pinned('write')]);
    const bad = pinKey('bad', 'f');
    writeVersion(4, [pinned('read')], `INSERT INTO pins VALUES ('${bad}', '${text}'), ('last', '${files}');`);
    const { pins } = open();
    expect(problems).toMatchObject([
      { code: 'invalid_spec', details: { server: 'bad', field: 'stateDir', reason: 'unusable_state' } },
    ]);
    expect([pins.load('files'), pins.load('last'), pins.load(bad)]).toEqual([
      [pinned('read')],
      [pinned('write')],
      undefined,
    ]);
    expect(elsewhere('SELECT server, records FROM unreadable_pins')).toMatchObject([{ server: bad, records: text }]);
    expect(elsewhere("SELECT name FROM sqlite_master WHERE name = 'pins'")).toEqual([]);
  });

  test('old pins are taken over all or not at all, and never in place of newer ones', () => {
    const records = JSON.stringify([pinned('write')]);
    const full = `CREATE TRIGGER full BEFORE DELETE ON pins WHEN OLD.server = 'last' BEGIN SELECT RAISE(ABORT, 'full'); END;`;
    writeVersion(4, [pinned('read')], `INSERT INTO pins VALUES ('last', '${records}'); ${full}`);
    expect(open).toThrow(expect.objectContaining({ details: expect.objectContaining({ reason: 'state_unusable' }) }));
    expect(elsewhere('SELECT owner FROM pin_sets')).toEqual([]);
    expect(elsewhere('SELECT server FROM pins')).toMatchObject([{ server: 'files' }, { server: 'last' }]);
    const newer = JSON.stringify(pinned('newer'));
    elsewhere(
      'DROP TRIGGER full',
      "INSERT INTO pin_sets (owner, written, isComplete, head) VALUES ('files', 1, 1, 'h')",
      `INSERT INTO pin_rows SELECT id, 'newer', 'approved', 1, '${newer}' FROM pin_sets`,
    );
    const { pins } = open();
    expect([pins.load('files'), pins.load('last'), problems]).toEqual([[pinned('newer')], [pinned('write')], []]);
  });

  test('a folder in which nothing can be created is refused, not tried for ever', () => {
    expect(() => StateFile.open('/proc/hostler/state', (error) => problems.push(error))).toThrow(
      expect.objectContaining({ details: expect.objectContaining({ reason: 'state_unusable' }) }),
    );
  });

  test('a file of a newer version is set aside and reported, and stays unchanged', () => {
    writeVersion(8);
    const before = readFileSync(file());
    const { pins, histories } = open();
    histories.save([row('a')]);
    expect(problems).toMatchObject([{ details: { reason: 'unusable_state' } }]);
    expect(pins.load('files')).toBeUndefined();
    expect(versionOf()).toBe(7);
    expect(readFileSync(`${file()}.unusable`).equals(before)).toBe(true);
    const aside = new Database(`${file()}.unusable`);
    expect(aside.prepare('SELECT server FROM pins').all()).toMatchObject([{ server: 'files' }]);
    aside.close();
  });

  test('a second host of the same process takes no lock from the first', () => {
    open();
    const { ino } = statSync(file());
    const locks = () =>
      readFileSync('/proc/locks', 'utf8')
        .split('\n')
        .filter((line) => line.includes(`:${ino} `) && line.includes(` ${process.pid} `)).length;
    const held = locks();
    expect(held).toBeGreaterThan(0);
    open();
    expect(locks()).toBe(held);
  });

  test('writes of a killed host are readable, even if they are only in the log file', () => {
    const killed = mkdtempSync(path.join(os.tmpdir(), 'hostler-state-'));
    try {
      StateFile.open(killed, () => expect.unreachable()).histories.save([row('files')]);
      expect(readdirSync(killed)).toContain('state.db-wal');
      for (const name of ['state.db', 'state.db-wal']) copyFileSync(path.join(killed, name), path.join(folder, name));
    } finally {
      rmSync(killed, { recursive: true, force: true });
    }
    expect(open().histories.load('files', 'f')).toEqual(row('files').record);
    expect(existsSync(`${file()}.unusable`)).toBe(false);
  });
});

describe('files that cannot be used for now', () => {
  test('a file that another process writes to is left where it is, and the error says so', () => {
    open();
    const script = `
      const d = new (require('libsql'))(process.argv[1]);
      d.exec('BEGIN EXCLUSIVE');
      require('node:fs').writeSync(1, 'locked');
      setTimeout(() => {}, 60_000);`;
    // Another folder with a link to the same file, because this process already has the file open by its first path.
    const other = mkdtempSync(path.join(os.tmpdir(), 'hostler-state-'));
    const locked = spawn(process.execPath, ['-e', script, path.join(other, 'state.db')], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    return new Promise<void>((resolve, reject) => {
      locked.stdout.once('data', () => {
        try {
          const problems: unknown[] = [];
          expect(() => StateFile.open(other, (problem) => problems.push(problem))).toThrow(
            expect.objectContaining({
              code: 'invalid_spec',
              details: expect.objectContaining({ reason: 'state_busy' }),
            }),
          );
          expect([problems, readdirSync(other).some((name) => name.includes('unusable'))]).toEqual([[], false]);
          resolve();
        } catch (error) {
          reject(error as Error);
        }
      });
    }).finally(() => {
      locked.kill('SIGKILL');
      rmSync(other, { recursive: true, force: true });
    });
  });

  test('a folder that others may write to is refused: they could approve any tool', () => {
    const shared = mkdtempSync(path.join(os.tmpdir(), 'hostler-state-'));
    chmodSync(shared, 0o777);
    try {
      expect(() => StateFile.open(shared, () => {})).toThrow(
        expect.objectContaining({ details: expect.objectContaining({ reason: 'others_may_write' }) }),
      );
      expect(readdirSync(shared)).toEqual([]);
    } finally {
      rmSync(shared, { recursive: true, force: true });
    }
  });
});

describe('listings', () => {
  const fail = (error: unknown) => {
    throw error;
  };
  const tool = (key: string, raw = '{}') => ({ key, raw: Buffer.from(raw) });

  test(`there are at most ${listingsMax}: the one written longest ago is deleted first`, () => {
    const { listings } = open();
    const head = JSON.stringify({ origin: 'f', lists: { 'tools/list': { ttlMs: 0, isPublic: false } } });
    const sets = Array.from({ length: listingsMax }, (_, i) => `('s${i}', ${i}, 1, '${head}')`);
    elsewhere(`INSERT INTO listing_sets (owner, written, isComplete, head) VALUES ${sets.join(', ')}`);
    elsewhere("INSERT INTO listing_rows SELECT id, '10:tools/list1:t1:0', 'tools/list', 1, '{}' FROM listing_sets");
    listings.save('s0', 'f', listing([tool('t')]), fail);
    listings.save('new', 'f', listing([tool('t')]), fail);
    const has = (server: string) => toolsOf(listings.load(server, 'f')).length > 0;
    expect(['s0', 's1', 's2', 'new'].map(has)).toEqual([true, false, true, true]);
    expect(elsewhere('SELECT count(*) AS n FROM listing_rows')).toMatchObject([{ n: listingsMax }]);
  });

  test('a listing above the limit in bytes is not stored, and the listing before it is deleted', () => {
    const state = open();
    const { listings } = state;
    listings.save('a', 'f', listing([tool('t')]), fail);
    // Three bytes and one character each.
    listings.save('a', 'f', listing([tool('t', '\u20ac'.repeat(Math.ceil(listingBytesMax / 3)))]), fail);
    state.flush();
    // Only the length is compared: the report of a failed comparison of so much text would never end.
    expect(toolsOf(listings.load('a', 'f')).length).toBe(0);
    listings.save('a', 'f', listing([tool('t', '9007199254740993')]), fail);
    expect(toolsOf(listings.load('a', 'f'))).toEqual([tool('t', '9007199254740993')]);
  });

  test('facts and lists are read back byte for byte; if not all fit, the tools are stored', () => {
    const state = open();
    const { listings } = state;
    const facts = {
      era: 'modern' as const,
      version: '2026-07-28',
      capabilities: Buffer.from('{ "tools": {"x":9007199254740993} }'),
      serverInfo: undefined,
      instructions: 'one\ntwo',
    };
    const prompts = { items: [tool('p', '{"name":"p"}')], ttlMs: 60_000, isPublic: true };
    const lists: Listing['lists'] = new Map([...listing([tool('t')]).lists, ['prompts/list', prompts]]);
    const all: Listing = { facts, lists, inputs: 'i' };
    listings.save('a', 'f', all, fail);
    expect(listings.load('a', 'f')).toEqual(all);
    expect(listings.load('a', 'other').lists.size).toBe(0);
    const huge = { ...prompts, items: [tool('p', 'x'.repeat(listingBytesMax))] };
    listings.save('a', 'f', { ...all, lists: new Map([...all.lists, ['prompts/list', huge]]) }, fail);
    state.flush();
    expect([...listings.load('a', 'f').lists.keys()]).toEqual(['tools/list']);
    expect(listings.load('a', 'f')).toMatchObject({ facts, inputs: 'i' });
  });
});

describe('X18 rows that are large', () => {
  const pin = (name: string, bytes: number): PinRecord => ({
    ...{ name, pending: undefined, firstHash: undefined, renamedFrom: undefined, isAmbiguous: false, isListed: true },
    approved: { hash: 'h', bodyHash: 'b', raw: 'x'.repeat(bytes), at: '2026-01-01T00:00:00.000Z' },
  });
  const stored = (table: 'pin' | 'listing') => elsewhere(`SELECT owner FROM ${table}_sets WHERE isComplete`).length;
  const fail = (error: unknown) => problems.push(error);

  test('are readable at once, and on disk after some turns of the event loop or after a flush', async () => {
    const state = open();
    const records = [pin('t', 300_000)];
    const large = listing([{ key: 't', raw: Buffer.alloc(300_000, 'x') }]);
    state.pins.saveSoon('a', records, fail);
    state.listings.save('a', 'f', large, fail);
    expect([stored('pin'), stored('listing')]).toEqual([0, 0]);
    expect(state.pins.load('a')).toBe(records);
    expect([state.listings.load('a', 'f'), state.listings.load('a', 'g').lists.size]).toEqual([large, 0]);
    await eventually('both are written', () => stored('pin') + stored('listing') === 2);
    expect(state.pins.load('a')?.[0]?.approved?.raw?.length).toBe(300_000);
    expect(toolsOf(state.listings.load('a', 'f'))).toEqual(toolsOf(large));
    state.pins.saveSoon('b', records, fail);
    state.flush();
    expect([stored('pin'), problems]).toEqual([2, []]);
  });

  test('X11 the tools of a server are never on disk before their pins', async () => {
    const state = open();
    const key = pinKey('a', 'f');
    const large = Array.from({ length: 2_000 }, (_, i) => pin(`t${i}`, 10));
    // Short texts in many records: the pins are large, the list is not.
    state.pins.saveSoon(key, large, fail);
    expect(stored('pin')).toBe(0);
    state.listings.save('a', 'f', listing([{ key: 't0', raw: Buffer.from('{}') }]), fail);
    // The list waits for the pins: writing both in one turn would take long.
    const counts = [`${stored('pin')} ${stored('listing')}`];
    expect(toolsOf(state.listings.load('a', 'f')).map(({ key: name }) => name)).toEqual(['t0']);
    await eventually('both are written', () => {
      counts.push(`${stored('pin')} ${stored('listing')}`);
      return counts.at(-1) === '1 1';
    });
    expect(counts[0]).toBe('0 0');
    expect(counts).not.toContain('0 1');
    // Now a large list is queued before its pins.
    state.listings.save('a', 'f', listing([{ key: 't0', raw: Buffer.alloc(300_000, 'y') }]), fail);
    state.pins.saveSoon(key, [pin('other', 300_000)], fail);
    const seen: string[] = [];
    await eventually('the list is written', () => {
      const [{ n }] = elsewhere('SELECT length(text) AS n FROM listing_rows') as [{ n: number }];
      const [{ name }] = elsewhere('SELECT name FROM pin_rows LIMIT 1') as [{ name: string }];
      seen.push(`${n >= 300_000} ${name === 'other'}`);
      return n >= 300_000;
    });
    expect(seen).not.toContain('true false');
    expect(seen.at(-1)).toBe('true true');
    expect(problems).toEqual([]);
  });

  test.each([
    ['long pins', 2_000],
    ['short ones', 1],
  ])('X11 if %s cannot be written, their list is not written either', async (_name, count) => {
    const state = open();
    const key = pinKey('a', 'f');
    const records = Array.from({ length: count }, (_, i) => pin(`t${i}`, 10));
    state.listings.save('a', 'f', listing([{ key: 'old', raw: Buffer.from('{}') }]), fail);
    elsewhere("CREATE TRIGGER no_pins BEFORE INSERT ON pin_rows BEGIN SELECT RAISE(FAIL, 'no room'); END");
    const failures: unknown[] = [];
    state.pins.saveSoon(key, records, (error) => failures.push(error));
    const unkept: unknown[] = [];
    state.listings.save('a', 'f', listing([{ key: 't0', raw: Buffer.from('{}') }]), (why) => unkept.push(why));
    await eventually('the write has failed', () => failures.length > 0 && stored('listing') === 0);
    expect([failures, unkept]).toEqual([[expect.objectContaining({ message: 'no room' })], ['pins']]);
    elsewhere('DROP TRIGGER no_pins');
    state.pins.saveSoon(key, records, fail);
    state.listings.save('a', 'f', listing([{ key: 't1', raw: Buffer.from('{}') }]), fail);
    await eventually('with room again both are written', () => stored('pin') === 1 && stored('listing') === 1);
  });

  test('X11 pins that a list has changed make the stored list invalid, and an approval does not', () => {
    const state = open();
    const key = pinKey('a', 'f');
    const list = listing([{ key: 't', raw: Buffer.from('{}') }]);
    const kept = () => [toolsOf(state.listings.load('a', 'f')).length, state.listings.isStored('a', 'f')];
    state.pins.saveSoon(key, [pin('t', 1)], fail);
    state.listings.save('a', 'f', list, fail);
    expect(kept()).toEqual([1, true]);
    state.pins.save(key, [pin('t', 2)]);
    expect(kept()).toEqual([1, true]);
    state.pins.saveSoon(key, [pin('t', 3)], fail);
    expect(kept()).toEqual([0, false]);
    state.listings.save('a', 'f', list, fail);
    // These pins are queued, and make the stored list invalid once they are written.
    state.pins.saveSoon(key, [pin('t', 300_000)], fail);
    expect(kept()).toEqual([1, false]);
    state.listings.save('a', 'f', list, fail);
    state.flush();
    expect([...kept(), problems]).toEqual([1, true, []]);
    // An approval for the newest list, while an older list is on disk.
    state.pins.saveSoon(key, [pin('t', 300_001)], fail);
    state.pins.save(key, [pin('t', 300_002)]);
    expect(kept()).toEqual([0, false]);
  });

  test('of 5,000 tools, changing, adding, removing or moving one writes one row and few pages', () => {
    const state = open();
    const key = pinKey('a', 'f');
    const raw = (text: string) => Buffer.from(JSON.stringify({ description: text.padEnd(900, '.') }));
    let items = Array.from({ length: 5_000 }, (_, i) => ({ key: `tool${i}`, raw: raw(`${i}`) }));
    let records = items.map((item) => pin(item.key, 900));
    const save = () => {
      state.pins.saveSoon(key, records, fail);
      state.listings.save('a', 'f', listing(items), fail);
      state.flush();
    };
    save();
    elsewhere('CREATE TABLE writes (name TEXT)');
    for (const table of ['pin_rows', 'listing_rows'])
      for (const kind of ['INSERT', 'UPDATE', 'DELETE'])
        elsewhere(
          `CREATE TRIGGER ${table}_${kind} AFTER ${kind} ON ${table} BEGIN INSERT INTO writes VALUES ('${table}'); END`,
        );
    const steps: [change: string, rows: number, run: () => void][] = [
      ['none', 0, () => {}],
      [
        'one changed',
        2,
        () => {
          items = items.with(2_500, { key: 'tool2500', raw: raw('other') });
          records = records.with(2_500, pin('tool2500', 901));
        },
      ],
      [
        'one added in the middle',
        2,
        () => {
          items = items.toSpliced(1_000, 0, { key: 'new', raw: raw('new') });
          records = [...records, pin('new', 900)];
        },
      ],
      [
        'one removed',
        1,
        () => {
          items = items.toSpliced(3_000, 1);
        },
      ],
      [
        'one moved to the end',
        1,
        () => {
          items = [...items.slice(1), ...items.slice(0, 1)];
        },
      ],
    ];
    for (const [change, rows, run] of steps) {
      elsewhere('DELETE FROM writes', 'PRAGMA wal_checkpoint(TRUNCATE)');
      run();
      save();
      const { size } = statSync(`${file()}-wal`);
      expect([change, elsewhere('SELECT name FROM writes').length]).toEqual([change, rows]);
      // The rows have 9 MB.
      expect(size).toBeLessThan(160 * 1024);
    }
    const database = new Database(file());
    const pending = new WriteBehind();
    const pins = pinsTable(database, pending);
    const text = (tools: readonly ListedItem[]) =>
      tools.map(({ key: name, raw: json }) => `${name} ${json}`).join('\n');
    // Compared as text: a comparison of so many buffers takes seconds.
    expect(text(toolsOf(listingsTable(database, pins, pending).load('a', 'f'))) === text(items)).toBe(true);
    expect(JSON.stringify(pins.load(key)) === JSON.stringify(records)).toBe(true);
    database.close();
    expect(problems).toEqual([]);
  });

  test('a large new set is written in batches, and is valid once it is complete', async () => {
    const state = open();
    const records = Array.from({ length: 2_000 }, (_, i) => pin(`t${i}`, 900));
    state.pins.saveSoon('a', records, fail);
    const counts = new Set<number>();
    await eventually('it is complete', () => {
      const [{ n }] = elsewhere('SELECT count(*) AS n FROM pin_rows') as [{ n: number }];
      counts.add(n);
      const isComplete = stored('pin') === 1;
      expect(isComplete ? n : 0).toBe(isComplete ? 2_000 : 0);
      return isComplete;
    });
    expect(counts.size).toBeGreaterThan(2);
  });

  // The larger list is still queued when its server is removed.
  test.each([1, 300_000])('AC-R7 of a removed server are kept only on disk, at %d bytes', async (bytes) => {
    const state = open();
    const key = pinKey('a', 'f');
    const held = () => {
      const record = pin('t', bytes);
      const raw = Buffer.alloc(bytes, 'x');
      state.pins.saveSoon(key, [record], fail);
      state.listings.save('a', 'f', listing([{ key: 't', raw }]), fail);
      return [new WeakRef(record), new WeakRef(raw)];
    };
    const refs = held();
    state.release('a', 'f');
    expect([stored('pin'), stored('listing'), problems]).toEqual([1, 1, []]);
    // A WeakRef keeps its object for the current job.
    await new Promise((resolve) => setImmediate(resolve));
    collect();
    expect(refs.map((each) => each.deref() !== undefined)).toEqual([false, false]);
    expect(toolsOf(state.listings.load('a', 'f')).map(({ raw }) => raw.length)).toEqual([bytes]);
    expect(state.pins.load(key)?.map(({ approved }) => approved?.raw?.length)).toEqual([bytes]);
  });

  test('are replaced by an immediate write of the same entry', async () => {
    const state = open();
    state.pins.saveSoon('a', [pin('t', 300_000)], fail);
    state.pins.save('a', [pin('u', 1)]);
    state.listings.save('a', 'f', listing([{ key: 't', raw: Buffer.alloc(300_000, 'x') }]), fail);
    state.listings.save('a', 'f', listing([]), fail);
    state.flush();
    expect(state.pins.load('a')?.map(({ name }) => name)).toEqual(['u']);
    expect(toolsOf(state.listings.load('a', 'f'))).toEqual([]);
  });
});

describe('histories', () => {
  test('are read back unchanged, only for the same server with the same definition', () => {
    const { histories } = open();
    histories.save([row('a', 1), row('b', 2), row('a', 3, 'g')]);
    expect(histories.load('a', 'f')).toEqual(row('a', 1).record);
    expect(histories.load('b', 'f')).toEqual(row('b', 2).record);
    expect(histories.load('a', 'g')).toEqual(row('a', 3).record);
    expect([histories.load('b', 'g'), histories.load('c', 'f')]).toEqual([undefined, undefined]);
  });

  test('the newest is used, and a reset history is removed from the file', () => {
    const { histories } = open();
    histories.save([row('a', 1), row('b', 1)]);
    histories.save([row('a', 2), forgiven('b'), forgiven('never there')]);
    expect([histories.load('a', 'f')?.failedProbes, histories.load('b', 'f'), count()]).toEqual([2, undefined, 1]);
    histories.save([forgiven('a')]);
    expect(count()).toBe(0);
  });

  test(`there are at most ${rowsMax}: the one written longest ago is deleted first`, () => {
    const { histories } = open();
    histories.save(Array.from({ length: rowsMax }, (_, i) => row(`s${i}`)));
    histories.save([row('s0', 2)]);
    expect(count()).toBe(rowsMax);
    histories.save([row('new'), row('newer')]);
    expect(count()).toBe(rowsMax);
    const has = (server: string) => histories.load(server, 'f') !== undefined;
    expect(['s0', 's1', 's2', 's3', 'new', 'newer'].map(has)).toEqual([true, false, false, true, true, true]);
  });

  test('are written in one transaction', () => {
    const { histories } = open();
    histories.save([row('a', 1), row('b', 1)]);
    elsewhere(
      "CREATE TRIGGER full BEFORE INSERT ON histories WHEN NEW.server = 'c' BEGIN SELECT RAISE(ABORT, 'no space'); END",
    );
    expect(() => histories.save([forgiven('a'), row('b', 2), row('c', 2)])).toThrow('no space');
    expect([histories.load('a', 'f')?.failedProbes, histories.load('b', 'f')?.failedProbes]).toEqual([1, 1]);
    histories.save([row('b', 3)]);
    expect(histories.load('b', 'f')?.failedProbes).toBe(3);
  });

  test('do not wait for the disk; later writes do, whether these succeeded or not', () => {
    const database = new Database(':memory:');
    database.pragma('synchronous = FULL');
    database.exec(historiesSchema);
    const histories = historiesTable(database);
    const full = 2;
    histories.save([row('a')]);
    expect(database.prepare('PRAGMA synchronous').all()).toMatchObject([{ synchronous: full }]);
    database.exec('DROP TABLE histories');
    expect(() => histories.save([row('a')])).toThrow('no such table');
    expect(database.prepare('PRAGMA synchronous').all()).toMatchObject([{ synchronous: full }]);
    database.close();
  });

  test('an overwritten record is refused', () => {
    const { histories } = open();
    histories.save([row('a')]);
    elsewhere(`UPDATE histories SET record = '{"restartsAt":"x"}'`);
    expect(() => histories.load('a', 'f')).toThrow();
  });
});
