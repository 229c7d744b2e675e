/**
 * A copy of bytes that are kept for long, in memory of their own. `Buffer.from` copies small ones into a block of 8 KiB that
 * Node shares with other buffers, and a kept copy of two bytes keeps that whole block.
 */
export function unpooledCopy(bytes: Uint8Array): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  copy.set(bytes);
  return copy;
}
