/**
 * A worker's link to the embedded broker.
 * Invariant: a cancel never overtakes the request it is about.
 */
import { hostMailbox, type OpenWorkerLink, ttlMsMax } from '../ports.js';
import { ackFrame, cancelFrame } from './client-frames.js';
import type { LinkSettings } from './host-link.js';
import { Link } from './link.js';
import { connectSocket } from './ws-client.js';

export interface WorkerLinkSettings extends LinkSettings {
  /** Where requests go. */
  readonly to?: string;
}

export const openWorkerLink =
  (settings: WorkerLinkSettings): OpenWorkerLink =>
  async (handlers, signal) => {
    const { key, clock, to = hostMailbox } = settings;
    const cancels = new Set<string>();
    const link: Link = await Link.open(
      {
        ...{ key, clock },
        connect: (reader, until) => connectSocket(settings, reader, until),
        onFrame(frame) {
          if (frame.kind === 'told') return handlers.told(frame.body);
          if (frame.kind !== 'message') return;
          if (frame.type === 'reply') handlers.replied(frame.id, frame.body);
          link.send(ackFrame(frame));
        },
      },
      signal,
    );
    return {
      me: link.me,
      closed: link.closed,
      async send({ id, body, ttlMs }) {
        const rounded = Math.min(Math.max(Math.ceil(ttlMs), 0), ttlMsMax);
        try {
          await link.deliver({ kind: 'deliver', id, type: 'request', to, ttlMs: rounded, body });
        } finally {
          if (!link.isAwaited(to, id) && cancels.delete(id)) link.send(cancelFrame(to, id));
        }
      },
      cancel(id) {
        if (link.isAwaited(to, id)) cancels.add(id);
        else link.send(cancelFrame(to, id));
      },
      close: () => link.close(),
    };
  };
