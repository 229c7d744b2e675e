/** What bounds the memory of a long-lived command, in processes of their own: flags of V8 count for a whole process. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';

const run = promisify(execFile);
const built = (name: string) => JSON.stringify(new URL(`../../dist/cli/${name}.js`, import.meta.url).href);

/** The looks that it takes from time to time are taken when `look` is called. */
const heapBounds = `
  let look = () => {};
  globalThis.setInterval = (taken) => { look = taken; return { unref() {} }; };
  globalThis.clearInterval = () => { look = () => {}; };
  const { boundHeap } = await import(${built('heap-bounds')});`;

async function printed(script: string): Promise<string> {
  return (await run(process.execPath, ['--input-type=module', '-e', script])).stdout.trim();
}

test.each([
  ['is', 'boundHeap();', true],
  ['without it is not', '', false],
])('the space for new objects %s bounded while many of them stay for a while', async (_name, begun, isBounded) => {
  const size = await printed(`${heapBounds}
    import { getHeapSpaceStatistics } from 'node:v8';
    ${begun}
    const kept = [];
    for (let i = 0; i < 400_000; i++) {
      kept[i % 20_000] = { number: i, text: String(i), list: [i, i, i, i] };
      if (i % 1_000 === 0) await look();
    }
    console.log(getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space').space_size / 2 ** 20);`);
  if (isBounded) expect(Number(size)).toBeLessThanOrEqual(8);
  else expect(Number(size)).toBeGreaterThan(8);
});

test('code that is kept under the bounds is taken by a process that begins without them', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-heap-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const bundle = path.join(folder, 'a.bundle.js');
  writeFileSync(bundle, `// ${'a'.repeat(64)}\n(function (exports, require, module) {\nexports.say = () => 1;\n})\n`);
  // A script says itself whether it took what was kept.
  const taken = (begun: string) =>
    printed(`${heapBounds}
      import vm from 'node:vm';
      const { Script } = vm;
      vm.Script = class extends Script {
        constructor(...given) { super(...given); console.log(this.cachedDataRejected); }
      };
      const { runBundle } = await import(${built('kept-code')});
      runBundle(${JSON.stringify(bundle)}, ${JSON.stringify(folder)}).say();
      ${begun}
      await look();`);
  expect(await taken('boundHeap();')).toBe('undefined');
  expect(await taken('')).toBe('false');
});
