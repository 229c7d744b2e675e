/**
 * Two linked transports in this process: an attached server is connected to `far`, the channel speaks over `near`.
 * Unlike the pair of the SDKs, `near` is handed `relatedRequestId` with each message, and tells `far` what it refused.
 *
 * Invariants: messages are handed over in the order they are sent; after either end is closed nothing is handed over, and
 * `onclose` of both ends has been called once.
 */
import { notOpen } from '../../wire/wire-errors.js';
import type { AttachableTransport } from './attachable.js';

export interface LinkedTransports {
  readonly near: AttachableTransport;
  readonly far: AttachableTransport;
}

/** `near.onmessage` may return the error with which it refuses a message; `far.send` then rejects with it. */
export function linkTransports(server: string): LinkedTransports {
  let isOpen = true;
  const end = () => {
    if (!isOpen) return;
    isOpen = false;
    // Both hear of it, whatever the first one throws.
    try {
      far.onclose?.();
    } finally {
      near.onclose?.();
    }
  };
  const far: AttachableTransport = {
    start: async () => {},
    send: async (message: unknown, options?: { readonly relatedRequestId?: unknown }) => {
      if (!isOpen) throw notOpen(server);
      const refusal = near.onmessage?.(message, { relatedRequestId: options?.relatedRequestId });
      if (refusal !== undefined) throw refusal;
    },
    close: async () => end(),
  };
  const near: AttachableTransport = {
    start: async () => {},
    send: async (message: unknown) => {
      if (!isOpen) throw notOpen(server);
      try {
        far.onmessage?.(message);
      } catch (error) {
        // The server failed at this message; the connection is as good as before.
        far.onerror?.(error instanceof Error ? error : new Error(String(error)));
      }
    },
    close: async () => end(),
  };
  return { near, far };
}
