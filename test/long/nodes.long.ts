/**
 * Hostler on every supported Node: it starts, lists, calls, and starts again with the code that the first start compiled. Node 22
 * and 24 come from the npm packages that hold their binaries, from the registry that npm is set up with; Node 20 is the one that
 * runs this.
 */
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, test } from 'vitest';
import { fixtureEntry, Workplace } from '../cli/hostler-process.js';

const run = promisify(execFile);
const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-nodes-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const minuteMs = 60_000;

/** The binary of the newest release of a major version. */
async function nodeOf(major: number): Promise<string> {
  if (process.versions.node.startsWith(`${major}.`)) return process.execPath;
  const own = path.join(folder, String(major));
  const name = `node-${process.platform}-${process.arch}`;
  const args = ['install', '--prefix', own, '--no-save', '--no-audit', '--no-fund', '--ignore-scripts'];
  await run('npm', [...args, `${name}@${major}`]);
  return path.join(own, 'node_modules', name, 'bin/node');
}

describe.each([20, 22, 24])('Node %i', (major) => {
  test(
    'starts, lists, calls, and starts again',
    async () => {
      const node = await nodeOf(major);
      const { stdout } = await run(node, ['--version']);
      expect(stdout.startsWith(`v${major}.`)).toBe(true);
      const place = new Workplace(node);
      try {
        place.configure({ mcpServers: { fixture: fixtureEntry() } });
        // The second start reads the code that the first start compiled.
        for (let starts = 1; starts <= 2; starts++) {
          const up = place.up();
          await up.ready();
          const called = await place.hostler('call', 'fixture', 'echo', '{"text":"hello"}');
          expect(called).toMatchObject({ code: 0, stdout: 'hello\n' });
          const listed = await place.hostler('tools', '--server', 'fixture');
          expect(listed.stdout).toMatch(/^fixture +echo +205 B /m);
          up.child.kill('SIGTERM');
          expect((await up.closed).code).toBe(0);
        }
        expect(existsSync(path.join(place.dataDir, 'compile-cache', 'up'))).toBe(true);
      } finally {
        await place.remove();
      }
    },
    3 * minuteMs,
  );
});
