/** Requests to authorization servers use the proxy of the environment. */

import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { expect, test } from 'vitest';
import { createOAuthHttp } from '../../src/identity/oauth-http.js';
import { systemClock } from '../../src/kernel/clock.js';
import { systemRandom } from '../../src/kernel/random.js';

test('metadata is fetched through the proxy; its password is in no error, and private addresses stay refused', async () => {
  const seen: string[] = [];
  const proxy = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', (chunk) => {
      seen.push(chunk.toString().split('\r\n')[0] ?? '');
      socket.end('HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n');
    });
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const { port } = proxy.address() as AddressInfo;
  const env = { HTTPS_PROXY: `http://ada:planted-password@127.0.0.1:${port}` };
  const url = 'https://mcp.example/mcp';
  const http = createOAuthHttp({ server: 'docs', clock: systemClock, random: systemRandom, url, env });
  const error = await http({ url: 'https://as.example/x', method: 'GET' }).catch((thrown: Error) => thrown);
  expect(seen).toEqual(['CONNECT as.example:443 HTTP/1.1']);
  expect(JSON.stringify(error) + String(error)).not.toContain('planted-password');
  for (const url of ['https://10.0.0.1/x', 'https://169.254.169.254/x', 'https://[::1]/x'])
    await expect(http({ url, method: 'GET' })).rejects.toMatchObject({ details: { reason: 'address_refused' } });
  expect(seen).toHaveLength(1);
  proxy.close();
});
