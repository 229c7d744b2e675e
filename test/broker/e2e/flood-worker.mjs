/** A worker that keeps $LANES calls with $BYTES in flight until its stdin ends. Arguments: url, server. The key is in $KEY. */
import process from 'node:process';
import { connect } from '../../../dist/broker/worker/index.js';

const [url, server] = process.argv.slice(2);
const worker = await connect({ broker: url, key: process.env.KEY, connectMs: 30_000 });
let isOver = false;
let number = 0;
const text = 'x'.repeat(Number(process.env.BYTES ?? 0));
const lane = async () => {
  while (!isOver) {
    const args = { nonce: `flood-${number++}`, sleepMs: Number(process.env.SLEEP_MS), text };
    await worker.execute(server, 'work', args, { deadlineMs: 60_000 }).catch(() => {
      return new Promise((resolve) => setTimeout(resolve, 20));
    });
  }
};
const lanes = Array.from({ length: Number(process.env.LANES) }, lane);
process.stdout.write('flooding\n');
process.stdin.resume().on('end', () => {
  isOver = true;
  void worker
    .close()
    .then(() => Promise.all(lanes))
    .then(() => process.exit(0));
});
