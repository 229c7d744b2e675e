import { expect, test } from 'vitest';
import { parseServerSpec } from '../config/server-spec.js';
import { memoryPinStore } from '../policy/pin-records.js';
import { pinsByOrigin } from './server-origin.js';

const saved = { name: 'a', command: 'node', args: ['x.js'], env: { TOKEN: '1' } };

/** Whether the pins of `saved` are found for a server with this definition. */
function isFoundBy(definition: Record<string, unknown>, from: Record<string, unknown> = saved): boolean {
  const store = memoryPinStore();
  pinsByOrigin(store, () => parseServerSpec(from)).save(String(from.name), []);
  return pinsByOrigin(store, () => parseServerSpec(definition)).load(String(definition.name)) !== undefined;
}

test('the same program under the same name has the same pins, whatever its variables', () => {
  expect(isFoundBy({ ...saved, env: { TOKEN: '2' } })).toBe(true);
});

test.each([
  { ...saved, name: 'b' },
  { ...saved, command: 'deno' },
  { ...saved, args: ['y.js'] },
  { ...saved, args: ['x.js', ''] },
  { ...saved, cwd: '/tmp' },
  { name: 'a', url: 'https://example.com/mcp' },
])('another name, program or place has pins of its own: %j', (definition) => {
  expect(isFoundBy(definition)).toBe(false);
});

test('a remote server is identified by its address, not by its headers', () => {
  const remote = { name: 'a', url: 'https://example.com/mcp', headers: { authorization: 'Bearer 1' } };
  expect(isFoundBy({ ...remote, headers: {} }, remote)).toBe(true);
  expect(isFoundBy({ ...remote, url: 'https://example.com/other' }, remote)).toBe(false);
});

test('the stored origin does not contain arguments', () => {
  const keys: string[] = [];
  const store = { load: () => undefined, save: (key: string) => void keys.push(key) };
  pinsByOrigin(store, () => parseServerSpec({ ...saved, args: ['--key=sesame'] })).save('a', []);
  expect(keys[0]).toMatch(/^1:a43:[\w-]{43}$/);
});
