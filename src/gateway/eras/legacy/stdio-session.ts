/**
 * The one legacy session a pipe can have, from `initialize` to the end of the pipe.
 * Invariant: the router is told of it once, after the handshake was answered and the client has shown that it read that.
 */
import type { Principal } from '../../../policy/operation.js';
import type { JsonText } from '../../../wire/frame.js';
import type { EndpointId } from '../../endpoint-id.js';
import type { ClientCapabilities, ClientSession } from '../../exchange.js';
import type { Initialize } from '../modern/envelope.js';

export class PipeSession implements ClientSession {
  readonly id: string;
  readonly era = 'legacy';
  readonly principal: Principal;
  readonly endpoint: EndpointId;
  readonly version: string;
  readonly capabilities: ClientCapabilities;
  readonly #notify: (method: string, params: JsonText | undefined) => void;
  readonly #abort = new AbortController();
  /** Some clients do not wait for the answer to their handshake. */
  hasProceeded = false;
  #wasOpened = false;
  #phase: 'opening' | 'answered' | 'open' | 'over' = 'opening';

  constructor(
    id: string,
    principal: Principal,
    endpoint: EndpointId,
    { version, capabilities }: Initialize,
    notify: (method: string, params: JsonText | undefined) => void,
  ) {
    this.id = id;
    this.principal = principal;
    this.endpoint = endpoint;
    this.version = version;
    this.capabilities = capabilities;
    this.#notify = notify;
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** A client may not hear of anything before it was answered. */
  notify(method: string, params: JsonText | undefined): void {
    if (this.#phase === 'answered' || this.#phase === 'open') this.#notify(method, params);
  }

  /** `initialize` was answered with a result. */
  answered(): void {
    if (this.#phase === 'opening') this.#phase = 'answered';
  }

  /** The client goes on. True once, when the handshake was answered too: now the router is told. */
  proceed(): boolean {
    this.hasProceeded = true;
    if (this.#phase !== 'answered') return false;
    this.#phase = 'open';
    this.#wasOpened = true;
    return true;
  }

  /** The router has seen it opened, and learns of its end by the signal. */
  get wasOpened(): boolean {
    return this.#wasOpened;
  }

  end(): void {
    this.#phase = 'over';
    this.#abort.abort();
  }
}
