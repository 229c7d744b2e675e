/** A real Connector that reports when the host ends one of its connections. */
import type { ServerSpec } from '../../src/config/server-spec.js';
import { type ConnectOptions, Connector, type ConnectorOptions } from '../../src/session/connector.js';
import type { Session } from '../../src/session/session.js';

export interface EndedConnection {
  readonly server: string;
  /** False: the connection of one client. */
  readonly isShared: boolean;
  /** The host considers the server healthy, and waits for open requests before it closes the connection. */
  readonly isOrderly: boolean;
}

export class WatchedConnector extends Connector {
  readonly #onEnd: (ended: EndedConnection) => void;

  /** `onEnd` is called once for each connection: before it is closed or drained, or when it was lost. */
  constructor(options: ConnectorOptions, onEnd: (ended: EndedConnection) => void) {
    super(options);
    this.#onEnd = onEnd;
  }

  override async connect(spec: ServerSpec, options: ConnectOptions = {}): Promise<Session> {
    const { isShared = true, handlers = {} } = options;
    let isEnded = false;
    const end = (isOrderly: boolean) => {
      if (isEnded) return;
      isEnded = true;
      this.#onEnd({ server: spec.name, isShared, isOrderly });
    };
    const closed: typeof handlers.closed = (error) => {
      end(false);
      handlers.closed?.(error);
    };
    const session = await super.connect(spec, { ...options, handlers: { ...handlers, closed } });
    const { drain, close } = session;
    session.drain = (withinMs) => {
      end(true);
      return drain.call(session, withinMs);
    };
    session.close = () => {
      end(false);
      return close.call(session);
    };
    return session;
  }
}
