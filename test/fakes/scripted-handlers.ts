/** The service of a host for tests of transports and workers: each operation is a function, and a call has its two answers. */
import type { AskedCalls, CallRequest, WorkerMessage } from '../../src/broker/protocol/messages.js';
import type { ServiceHandlers, WorkerSession } from '../../src/broker/service/transport.js';
import type { HostError } from '../../src/kernel/errors.js';

/** One sending of a call. */
export interface IncomingCall {
  readonly session: WorkerSession;
  readonly request: CallRequest;
  readonly receipt: (owner: string) => void;
  readonly refuse: (error: HostError) => void;
}

export abstract class ScriptedHandlers implements ServiceHandlers {
  storeId = 'store-1';

  abstract call(incoming: IncomingCall): void;
  abstract cancel(session: WorkerSession, key: string): void;
  abstract acknowledge(session: WorkerSession, keys: readonly string[]): void;
  abstract ask(session: WorkerSession, keys: readonly string[]): Promise<AskedCalls>;
  abstract manifest(session: WorkerSession): Promise<Buffer>;

  connected(_session: WorkerSession): void {}

  left(_session: WorkerSession, _reason: string): void {}

  heard(session: WorkerSession, message: WorkerMessage): void {
    switch (message.op) {
      case 'call': {
        const { op: _op, ...request } = message;
        const { key } = request;
        const receipt = (owner: string) => void session.send({ op: 'receipt', key, owner, storeId: this.storeId });
        return this.call({ session, request, receipt, refuse: (error) => session.send({ op: 'refused', key, error }) });
      }
      case 'cancel':
        return this.cancel(session, message.key);
      case 'ack':
        return this.acknowledge(session, message.keys);
      case 'ask':
        return void this.ask(session, message.keys).then((asked) =>
          session.send({ op: 'asked', id: message.id, ...asked }),
        );
      case 'manifest':
        return void this.manifest(session).then((body) => session.send({ op: 'manifest', id: message.id, body }));
      default:
        throw new Error(`${message.op} is not for the service`);
    }
  }
}
