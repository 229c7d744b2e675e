/**
 * The cost of a parked server in a real host, measured in a separate process with garbage collection on demand.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const script = fileURLToPath(new URL('./parked-cost.mjs', import.meta.url));
const count = Number(process.env.PARKED ?? 250);
const heapBytesMax = 4_096;

interface Cost {
  /** Heap per server. */
  readonly heapBytes: number;
  /** Descriptors of all servers together. */
  readonly descriptors: number;
  readonly timers: number;
}

test(`S9 parking: each of ${count} parked servers costs at most 4 KiB of heap, 1 timer and no descriptor`, {
  timeout: 120_000,
}, async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'hostler-parked-'));
  try {
    const { stdout } = await promisify(execFile)(process.execPath, ['--expose-gc', script, String(count), folder]);
    console.log(`S9 ${stdout.trim()}`);
    const { parked, lazy, isParked } = JSON.parse(stdout) as { parked: Cost; lazy: Cost; isParked: number };
    expect(isParked).toBe(count);
    expect(parked).toMatchObject({ descriptors: 0, timers: 1 });
    expect(lazy).toMatchObject({ descriptors: 0, timers: 0 });
    expect(lazy.heapBytes).toBeLessThanOrEqual(heapBytesMax);
    expect(parked.heapBytes).toBeLessThanOrEqual(heapBytesMax);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
