/**
 * Packs the messages to one session in one turn of the event loop into one NATS message, because nats-server and both clients have a
 * cost per message. A pack begins with a line break and has one message per line. A large message, or one with a line break, is sent alone.
 */
const lineBreak = 10;
const packedBytesMax = 64 * 1024;

/** In order. Each message is JSON, so none begins with a line break. */
export function packed(messages: readonly Buffer[]): Buffer[] {
  if (messages.length < 2) return [...messages];
  const packs: Buffer[] = [];
  let lines: Buffer[] = [];
  let bytes = 0;
  const end = () => {
    if (lines.length > 0) packs.push(lines.length === 2 ? (lines[1] as Buffer) : Buffer.concat(lines));
    [lines, bytes] = [[], 0];
  };
  for (const message of messages) {
    const isAlone = message.length > packedBytesMax || message.includes(lineBreak);
    if (isAlone || bytes + message.length > packedBytesMax) end();
    if (isAlone) packs.push(message);
    else lines.push(newLine, message);
    bytes += message.length;
  }
  end();
  return packs;
}

const newLine = Buffer.from([lineBreak]);

export function unpacked(bytes: Buffer): Buffer[] {
  if (bytes[0] !== lineBreak) return [bytes];
  const messages: Buffer[] = [];
  for (let start = 1; start < bytes.length; ) {
    const next = bytes.indexOf(lineBreak, start);
    const end = next < 0 ? bytes.length : next;
    messages.push(bytes.subarray(start, end));
    start = end + 1;
  }
  return messages;
}
