/**
 * A router before which stands what is different about a worker: methods that it does not carry are none of its methods, and what
 * is said of its tools waits, once and for a moment, until the first of them are known.
 * Invariant: everything else is for the router behind it.
 */
import type { Exchange, Router } from '../../gateway/exchange.js';
import { RPC } from '../../wire/rpc-codes.js';

const notCarried = /^(?:prompts|resources|completion|logging)\//;

/** What to wait for before anything is said; undefined: nothing any more. Never rejects. */
export type FirstTools = (topic: 'greeting' | 'tools') => Promise<void> | undefined;

/** Who is greeted with what there is need not be told at once that there is more. */
const topics: ReadonlyMap<string, Parameters<FirstTools>[0]> = new Map([
  ['initialize', 'greeting'],
  ['server/discover', 'greeting'],
  ['tools/list', 'tools'],
  ['tools/call', 'tools'],
]);

export function toolsOnly(router: Router, first: FirstTools): Router {
  const handle = (exchange: Exchange): void => {
    const { method } = exchange;
    if (notCarried.test(method))
      return exchange.fail({ code: RPC.methodNotFound, message: 'method not found: a worker carries tools only' });
    const topic = topics.get(method);
    const wait = topic && first(topic);
    if (wait === undefined) return router.handle(exchange);
    const goOn = () => router.handle(exchange);
    wait.then(goOn, goOn);
  };
  return {
    handle,
    hasEndpoint: (endpoint, principal) => router.hasEndpoint(endpoint, principal),
    opened: (session) => router.opened(session),
    notified: (client, method, params) => router.notified(client, method, params),
    mirroredArguments: (endpoint, principal, tool) => router.mirroredArguments(endpoint, principal, tool),
    keysChanged: (now) => router.keysChanged?.(now),
    close: () => router.close?.(),
  };
}
