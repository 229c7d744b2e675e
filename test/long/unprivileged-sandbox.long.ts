/**
 * E7 for a user without privileges: the tests of the sandbox, of its leftover processes and of the real servers. They run as `nobody`
 * if this user is root. bubblewrap then works through a user namespace. The repository must be readable by everybody.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const nobody = 65_534;
const files = ['process/sandbox', 'process/wrappers', 'contract/real-servers'];

test('E7 the sandbox holds for a user without privileges', () => {
  const parent = path.join(root, '.vitest');
  mkdirSync(parent, { recursive: true });
  // All files of the other user are written here.
  const folder = mkdtempSync(path.join(parent, 'nobody-'));
  try {
    chmodSync(parent, 0o755);
    const isRoot = process.getuid?.() === 0;
    if (isRoot) chownSync(folder, nobody, nobody);
    const user = isRoot ? ['setpriv', '--reuid', String(nobody), '--regid', String(nobody), '--clear-groups'] : ['env'];
    const vitest = path.join(root, 'node_modules', 'vitest', 'vitest.mjs');
    const tests = files.map((file) => `test/${file}.test.ts`);
    const flags = ['run', '--configLoader', 'runner', '--reporter=json', '--silent=true', ...tests];
    const [program = '', ...rest] = [...user, process.execPath, vitest, ...flags];
    const env = {
      PATH: '/usr/local/bin:/usr/bin:/bin',
      HOME: folder,
      TMPDIR: folder,
      TEST_SCRATCH: folder,
      TEST_TIER: 'long',
    };
    const stdout = execFileSync(program, rest, { cwd: root, env, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 });
    const { numTotalTests, numPassedTests } = JSON.parse(stdout) as { numTotalTests: number; numPassedTests: number };
    expect(numTotalTests).toBeGreaterThan(30);
    expect(numPassedTests).toBe(numTotalTests);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
