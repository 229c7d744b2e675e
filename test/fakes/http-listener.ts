/**
 * A listener that records the reports of a channel, and frames to send. Waits are for conditions, never for time.
 */

import type { HostError } from '../../src/kernel/errors.js';
import {
  type ChannelListener,
  type HttpFacts,
  type JsonText,
  notificationFrame,
  type OutboundFrame,
  requestFrame,
} from '../../src/wire/channel.js';
import type { Envelope } from '../../src/wire/envelope.js';
import { legacyEra, modernEra } from './eras.js';

export interface Heard {
  readonly text: string;
  readonly kind: Envelope['kind'];
  readonly id: number;
  readonly origin: OutboundFrame | undefined;
}

let nextId = 1;

const opening: Readonly<Record<string, HttpFacts>> = {
  'server/discover': { opens: modernEra },
  initialize: { opens: legacyEra },
};

export const request = (method: string, params: unknown = {}, http = opening[method]): OutboundFrame =>
  rawRequest(method, JSON.stringify(params), http);

/** A request with unchanged params, for tests of sizes and bytes. */
export const rawRequest = (method: string, params: JsonText, http?: HttpFacts): OutboundFrame =>
  requestFrame(nextId++, method, params, http);

export const notification = (method: string): OutboundFrame => notificationFrame(method, '{}');

export class RecordingListener implements ChannelListener {
  readonly messages: Heard[] = [];
  readonly failures: Array<{ frame: OutboundFrame; error: HostError }> = [];
  readonly ends: HostError[] = [];
  /** Number of reports after `closed`, which are always a bug. */
  late = 0;
  #wake: Array<() => void> = [];

  message(envelope: Envelope, origin: OutboundFrame | undefined): void {
    if (this.ends.length > 0) this.late++;
    const text = envelope.payload()?.toString() ?? '';
    this.messages.push({ text, kind: envelope.kind, id: envelope.numericId(), origin });
    this.#changed();
  }

  failed(frame: OutboundFrame, error: HostError): void {
    if (this.ends.length > 0) this.late++;
    this.failures.push({ frame, error });
    this.#changed();
  }

  closed(error: HostError): void {
    if (this.ends.length > 0) this.late++;
    this.ends.push(error);
    this.#changed();
  }

  /** Resolves when `condition` holds. It is checked after each report. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>((resolve) => this.#wake.push(resolve));
  }

  answerTo(frame: OutboundFrame): Heard | undefined {
    return this.messages.find((heard) => (heard.kind === 'result' || heard.kind === 'error') && heard.id === frame.id);
  }

  failureOf(frame: OutboundFrame): HostError | undefined {
    return this.failures.find((failure) => failure.frame === frame)?.error;
  }

  async settled(frame: OutboundFrame): Promise<Heard | HostError> {
    await this.until(() => this.answerTo(frame) !== undefined || this.failureOf(frame) !== undefined);
    return this.answerTo(frame) ?? (this.failureOf(frame) as HostError);
  }

  #changed(): void {
    const wake = this.#wake;
    this.#wake = [];
    for (const resolve of wake) resolve();
  }
}
