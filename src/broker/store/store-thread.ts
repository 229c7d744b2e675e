/**
 * The thread in which the store waits for its disk. Everything that has come by the time a commit ends is the next transaction:
 * the busier the broker, the more share one sync.
 * Not here: what is done (mail-file.ts), who asks (broker-store.ts).
 *
 * Invariant: after a failure the thread answers nothing more, keeps the lock and writes nothing, until its process ends.
 */
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { isHostError } from '../../kernel/errors.js';
import { MailFile } from './mail-file.js';
import { type FromThread, pack, type StoreThreadData, type ToThread, unpack } from './store-messages.js';
import { type Operation, type Refusal, refusal, toHostError } from './store-words.js';
import { lockFolder, type WriterLock } from './writer-lock.js';

const { folder, limits, nowMs, owner } = workerData as StoreThreadData;
const port = parentPort as NonNullable<typeof parentPort>;
let problems: Refusal[] = [];
const told = (): Refusal[] => {
  const all = problems;
  problems = [];
  return all;
};
const say = (words: FromThread, bytes?: Uint8Array): void =>
  port.postMessage(words, bytes ? [bytes.buffer as ArrayBuffer] : []);

interface Waiting {
  readonly operation: Operation;
  readonly nowMs: number;
}
let waiting: Waiting[] = [];
let isClosing = false;
let hasFailed = false;

let lock: WriterLock | undefined;
try {
  lock = lockFolder(folder, owner);
  const file = new MailFile({ folder, limits, nowMs, onProblem: (error) => problems.push(refusal(error)) });
  port.on('message', (message: ToThread) => {
    take(message);
    takeAll();
    serve(file);
  });
  say({ kind: 'opened', state: file.state, beganAtMs: file.beganAtMs, problems: told() });
} catch (error) {
  say({ kind: 'refused', refusal: refusal(toHostError(error)), problems: told() });
  port.close();
}

function take(message: ToThread): void {
  if ('close' in message) {
    isClosing = true;
    return;
  }
  for (const operation of unpack(message)) waiting.push({ operation, nowMs: message.nowMs });
}

function takeAll(): void {
  for (let next = receiveMessageOnPort(port); next !== undefined; next = receiveMessageOnPort(port))
    take(next.message as ToThread);
}

function serve(file: MailFile): void {
  while (waiting.length > 0 && !hasFailed) {
    const group = nextGroup();
    try {
      const answers = pack(file.run(group.operations, group.nowMs));
      say({ kind: 'answered', answers, state: file.state, problems: told() }, answers.bytes);
    } catch (error) {
      hasFailed = true;
      waiting = [];
      say({ kind: 'failed', cause: causeOf(error), problems: told() });
    }
    takeAll();
  }
  if (!isClosing) return;
  const cause = file.close();
  // Everything was answered before; but that it will be slower to open the next time, and why, is told.
  if (cause !== undefined) say({ kind: 'failed', cause: causeOf(cause), problems: told() });
  // What failed is left alone: the lock goes with the thread, after the file.
  if (file.state !== 'failed') lock?.release();
  port.close();
}

/** What has come, as much as one transaction may hold. */
function nextGroup(): { operations: Operation[]; nowMs: number } {
  const operations: Operation[] = [];
  let [bytes, at, latestMs] = [0, 0, 0];
  for (; at < waiting.length && at < limits.groupCount && bytes < limits.groupBytes; at++) {
    const { operation, nowMs: sentAtMs } = waiting[at] as Waiting;
    operations.push(operation);
    if (operation.op === 'put') bytes += operation.mail.body.length;
    if (operation.op === 'finish') bytes += operation.reply.length;
    latestMs = sentAtMs;
  }
  waiting = at === waiting.length ? [] : waiting.slice(at);
  return { operations, nowMs: latestMs };
}

const causeOf = (error: unknown): string =>
  isHostError(error) ? error.message : String((error as { code?: unknown }).code ?? (error as Error).message);
