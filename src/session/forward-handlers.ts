/**
 * Handlers that pass everything on to other handlers, for code that listens in on some of them.
 * Each is looked up when it is called: a handler may be a method, and one that is set on the object later counts too.
 * Invariant: none is forgotten. A new member of SessionHandlers does not compile until it is passed on here.
 */
import type { SessionHandlers } from './session.js';

type Forwarded = Required<Omit<SessionHandlers, 'request'>> & Pick<SessionHandlers, 'request'>;

export function forwardHandlers(to: SessionHandlers): Forwarded {
  const all: Required<SessionHandlers> = {
    request: (request) => to.request?.(request),
    notification: (notification) => to.notification?.(notification),
    closed: (error) => to.closed?.(error),
    handlerError: (error) => to.handlerError?.(error),
    unattributed: (method) => to.unattributed?.(method),
    missed: () => to.missed?.(),
    answered: () => to.answered?.(),
    renewed: () => to.renewed?.(),
  };
  if (to.request) return all;
  // Without a handler the peer refuses requests of the server itself, so there must be none.
  const { request, ...others } = all;
  return others;
}
