/** The V8 flags of long-running commands, in separate processes, because they apply to a whole process. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const run = promisify(execFile);
const built = (name: string) => JSON.stringify(new URL(`../../dist/cli/${name}.js`, import.meta.url).href);

/** The timer runs when `begin` is called. */
const heapFlags = `
  let begin = () => {};
  globalThis.setTimeout = (taken) => { begin = taken; return { unref() {} }; };
  const { limitHeap } = await import(${built('process/heap-flags')});
  const { getHeapSpaceStatistics } = await import('node:v8');
  const newSpaceMiB = () =>
    getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space').space_size / 2 ** 20;
  /** Makes objects, of which 20,000 are alive at any time. */
  async function load() {
    const kept = [];
    for (let i = 0; i < 400_000; i++) {
      kept[i % 20_000] = { number: i, text: String(i), list: [i, i, i, i] };
      if (i % 1_000 === 0) await new Promise(setImmediate);
    }
  }`;

async function printed(script: string): Promise<string> {
  return (await run(process.execPath, ['--input-type=module', '-e', script])).stdout.trim();
}

test.each([
  ['is', 'limitHeap();', true],
  ['without it is not', '', false],
])('new space %s limited while many new objects survive', async (_name, begun, isBounded) => {
  const size = await printed(`${heapFlags}
    ${begun}
    await begin();
    await load();
    console.log(newSpaceMiB());`);
  if (isBounded) expect(Number(size)).toBeLessThanOrEqual(8);
  else expect(Number(size)).toBeGreaterThan(8);
});

test('new space that V8 took back while the process was idle grows again, up to its limit', async () => {
  const size = await printed(`${heapFlags}
    const { Session } = await import('node:inspector');
    limitHeap();
    await begin();
    await load();
    const session = new Session();
    session.connect();
    // As V8 does after 8 s without work.
    session.post('HeapProfiler.collectGarbage');
    await load();
    console.log(newSpaceMiB());`);
  expect(Number(size)).toBe(8);
});
