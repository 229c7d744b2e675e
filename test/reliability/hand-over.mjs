/**
 * Loaded into a host with `--import`: records when each call was passed to its server, one line per call (`NONCE MS`, wall time in
 * ms since 1970), and writes the lines to $HANDED_OVER when the host ends. The moment is that of the write to the server's stdin.
 */
import { writeFileSync } from 'node:fs';
import { Socket } from 'node:net';

const handed = [];
const { write } = Socket.prototype;
const patterns = /"name":"work","arguments":\{"nonce":"(\w+)"/g;
Socket.prototype.write = function (chunk, ...rest) {
  const text = typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString('latin1');
  if (text.includes('"tools/call"')) {
    const atMs = performance.timeOrigin + performance.now();
    for (const [, nonce] of text.matchAll(patterns)) handed.push(`${nonce} ${atMs.toFixed(3)}\n`);
  }
  return write.call(this, chunk, ...rest);
};
process.on('exit', () => {
  if (process.env.HANDED_OVER) writeFileSync(process.env.HANDED_OVER, handed.join(''));
});
