/**
 * A router for a worker: methods that a worker does not support are unknown methods, and answers about tools wait for the first manifest.
 * Invariant: all other requests go to the router behind it.
 */
import type { Exchange, Router } from '../../gateway/exchange.js';
import { ERRORS, type HostError } from '../../kernel/errors.js';
import { RPC } from '../../wire/methods.js';

const unsupported = /^(?:prompts|resources|completion|logging)\//;

/** What a request waits for; undefined: nothing. Resolves with an error if no tools are known. Never rejects. */
export type FirstTools = (topic: 'greeting' | 'tools') => Promise<HostError | undefined> | undefined;

/** The greeting waits too, so that the client is not told at once that the list has changed. */
const topics: ReadonlyMap<string, Parameters<FirstTools>[0]> = new Map([
  ['initialize', 'greeting'],
  ['server/discover', 'greeting'],
  ['tools/list', 'tools'],
  ['tools/call', 'tools'],
]);

export function toolsOnly(router: Router, firstTools: FirstTools): Router {
  const handle = (exchange: Exchange): void => {
    const { method } = exchange;
    if (unsupported.test(method))
      return exchange.fail({ code: RPC.methodNotFound, message: 'method not found: a worker has tools only' });
    const topic = topics.get(method);
    const wait = topic && firstTools(topic);
    if (wait === undefined) return router.handle(exchange);
    void wait.then((error) => {
      if (error && topic === 'tools') fail(exchange, error);
      else router.handle(exchange);
    });
  };
  return {
    handle,
    hasEndpoint: (endpoint, principal) => router.hasEndpoint(endpoint, principal),
    opened: (session) => router.opened(session),
    mirroredArguments: (endpoint, principal, tool) => router.mirroredArguments(endpoint, principal, tool),
    keysChanged: (now) => router.keysChanged?.(now),
    close: () => router.close?.(),
  };
}

/** An empty list would say that there are no tools. */
function fail(exchange: Exchange, error: HostError): void {
  const hint = error.hint === undefined ? '' : `; ${error.hint}`;
  exchange.fail({
    code: ERRORS[error.code].rpc,
    message: `the tools are not known yet: ${error.message}${hint}`,
    data: JSON.stringify(error.toJSON()),
  });
}
