/** Hands one message of a worker to the service, the same on every transport. */
import { type HostMessage, invalid, type WorkerMessage } from '../protocol/messages.js';
import type { IncomingCall, ServiceHandlers, WorkerSession } from './transport.js';

/** What receipts say about the store. */
export interface ReceiptFacts {
  readonly storeId: string;
  readonly seen?: string | undefined;
}

const answered: ReadonlySet<WorkerMessage['op']> = new Set(['call', 'ask', 'manifest']);
export const hasAnswer = ({ op }: WorkerMessage): boolean => answered.has(op);

/** `answer` is called once, for messages that have an answer. */
export function serveMessage(
  message: WorkerMessage,
  session: WorkerSession,
  handlers: ServiceHandlers,
  facts: () => ReceiptFacts,
  answer: (answer: HostMessage) => void,
): void {
  switch (message.op) {
    case 'call':
      return handlers.call({ session, request: message, ...answersTo(message.key, facts, answer) });
    case 'cancel':
      return void handlers.cancel(session, message.key);
    case 'ack':
      return handlers.acknowledge(session, message.keys);
    case 'ask':
      return void handlers
        .ask(session, message.keys)
        .then((asked) => answer({ op: 'asked', id: message.id, ...asked }));
    case 'manifest':
      return void handlers.manifest(session).then((body) => answer({ op: 'manifest', id: message.id, body }));
    default:
      throw invalid('op', `cannot be ${message.op} here`);
  }
}

/** A separate function: its closures must not keep the arguments of the call in memory until the call has an outcome. */
const answersTo = (
  key: string,
  facts: () => ReceiptFacts,
  answer: (answer: HostMessage) => void,
): Pick<IncomingCall, 'receipt' | 'refuse'> => ({
  receipt: (owner) => answer({ op: 'receipt', key, owner, ...facts() }),
  refuse: (error) => answer({ op: 'refused', key, error }),
});
