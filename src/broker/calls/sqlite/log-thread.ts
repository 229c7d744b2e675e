/**
 * The thread that writes the log, so only it waits for the disk. Operations that arrive during a commit are written in the next
 * transaction, so many calls share one sync.
 * Not here: the transaction (log-store.ts), the other end (sqlite-call-log.ts).
 *
 * Invariant: after a failure the thread reports it, then answers and writes nothing, and keeps the lock until the process ends.
 */
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { isHostError } from '../../../kernel/errors.js';
import { logFailed } from './log-errors.js';
import { lockFolder, moveFailed } from './log-file.js';
import {
  type ErrorText,
  type FromThread,
  type Operation,
  type ThreadData,
  type ToThread,
  textOf,
  transfersOf,
  type Written,
} from './log-messages.js';
import { LogStore, replyBytesOf } from './log-store.js';

/** Bound of one transaction: a larger one would keep small calls waiting and need a large write-ahead log. */
const operationsMax = 1_024;
const bytesMax = 1024 * 1024;

const { folder, owner, startedAt } = workerData as ThreadData;
const port = parentPort as NonNullable<typeof parentPort>;
let waiting: Operation[] = [];
let nowMs = 0;
let isClosing = false;
const problems: ErrorText[] = [];

const say = (message: FromThread, transfers: ArrayBuffer[] = []): void => port.postMessage(message, transfers);
const sayWritten = (written: Written): void =>
  say({ kind: 'written', ...written, problems: problems.splice(0) }, transfersOf(written.answers));

try {
  const unlock = folder === undefined ? () => {} : lockFolder(folder, startedAt);
  const store = new LogStore(folder, owner, (error) => problems.push(textOf(error)));
  port.on('message', (message: ToThread) => {
    try {
      take(message);
      for (takeAll(); waiting.length > 0; takeAll()) sayWritten(store.write({ operations: nextGroup(), nowMs }));
      if (!isClosing) return;
      store.close();
      unlock();
      port.close();
    } catch (error) {
      giveUp(error);
    }
  });
  sayWritten(store.write({ operations: [], nowMs }));
} catch (error) {
  say({ kind: 'refused', error: textOf(isHostError(error) ? error : logFailed(causeOf(error), 'not_executed')) });
  port.close();
}

function take(message: ToThread): void {
  if ('close' in message) {
    isClosing = true;
    return;
  }
  waiting = waiting.length === 0 ? [...message.operations] : [...waiting, ...message.operations];
  nowMs = message.nowMs;
}

function takeAll(): void {
  for (let next = receiveMessageOnPort(port); next !== undefined; next = receiveMessageOnPort(port))
    take(next.message as ToThread);
}

/** Whether unanswered operations were written is unknown. The next start recovers them from the write-ahead log. */
function giveUp(error: unknown): void {
  waiting = [];
  if (folder !== undefined) moveFailed(folder);
  say({ kind: 'failed', cause: causeOf(error) });
  port.removeAllListeners('message');
  // Without a listener on the port the thread would end and release its lock.
  port.on('message', () => {});
}

function nextGroup(): Operation[] {
  let [at, bytes] = [0, 0];
  while (at < waiting.length && at < operationsMax && bytes < bytesMax)
    bytes += replyBytesOf(waiting[at++] as Operation);
  const group = waiting.slice(0, at);
  waiting = waiting.slice(at);
  return group;
}

function causeOf(error: unknown): string {
  const { code, message } = error as { code?: unknown; message?: unknown };
  return String(code ?? message);
}
