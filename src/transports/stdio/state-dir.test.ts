import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { requireTrusted } from './state-dir.js';

const own = process.getuid?.() as number;

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(path.join(tmpdir(), 'hostler-state-'));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

test.each(['700', '755', '500'])('an own directory with mode %s is trusted', (octal) => {
  chmodSync(dir, Number.parseInt(octal, 8));
  expect(() => requireTrusted(dir)).not.toThrow();
});

test.each(['720', '702', '777', '1777'])(
  'a directory with mode %s is not trusted, because others may write to it',
  (octal) => {
    chmodSync(dir, Number.parseInt(octal, 8));
    expect(() => requireTrusted(dir)).toThrow(
      expect.objectContaining({
        code: 'invalid_spec',
        details: { reason: 'others_may_write', field: 'stateDir' },
        hint: `remove that permission: chmod go-w ${dir}`,
      }),
    );
  },
);

test('a directory of another user is not trusted', () => {
  expect(() => requireTrusted(dir, own + 1)).toThrow(
    expect.objectContaining({ code: 'invalid_spec', details: { reason: 'foreign_owner', field: 'stateDir' } }),
  );
});

test('a missing directory is accepted, because Hostler will create it', () => {
  expect(() => requireTrusted(path.join(dir, 'none'))).not.toThrow();
});
