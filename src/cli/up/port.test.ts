import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { HostError } from '../../kernel/errors.js';
import { hasPort, listenAnywhere } from './port.js';

let dataDir: string;
beforeEach(() => {
  dataDir = mkdtempSync(path.join(os.tmpdir(), 'hostler-port-'));
});
afterEach(() => rmSync(dataDir, { recursive: true, force: true }));

/** Ports that were tried; those of `taken` fail. Port 0 becomes 4711. */
function gateway(...taken: number[]) {
  const tried: number[] = [];
  const listen = async (port = -1) => {
    tried.push(port);
    if (taken.includes(port)) throw new HostError('invalid_spec', 'in use', { reason: 'EADDRINUSE' });
    return `http://127.0.0.1:${port || 4711}/mcp`;
  };
  return { tried, listen };
}
const start = async (...taken: number[]) => {
  const { tried, listen } = gateway(...taken);
  await listenAnywhere({ listen }, dataDir, 8383, (error) => expect(error).toBeUndefined());
  return tried;
};

test('R5 the port is 8383; if 8383 is in use, a free port is chosen, which the next starts use too', async () => {
  expect(await start()).toEqual([8383]);
  expect(await start(8383)).toEqual([8383, 0]);
  expect(readFileSync(path.join(dataDir, 'port'), 'utf8')).toBe('4711\n');
  expect(await start()).toEqual([4711]);
  expect(await start(4711)).toEqual([4711, 0]);
});

test('a damaged file of the stored port is ignored, and other errors are not retried', async () => {
  writeFileSync(path.join(dataDir, 'port'), '99999999');
  expect(await start()).toEqual([8383]);
  const listen = () => Promise.reject(new HostError('invalid_spec', 'no', { reason: 'EACCES' }));
  await expect(listenAnywhere({ listen }, dataDir, 80, () => {})).rejects.toThrow('no');
});

test('the configuration chooses a port if it has listen.port, even 0', () => {
  expect([{}, { listen: {} }, { listen: { port: 0 } }].map(hasPort)).toEqual([false, false, true]);
});
