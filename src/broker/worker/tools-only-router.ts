/**
 * A router for a worker: methods that a worker does not support are unknown methods, and answers about tools wait for the first manifest.
 * Invariant: all other requests go to the router behind it.
 */
import type { Exchange, Router } from '../../gateway/exchange.js';
import { ERRORS, type HostError } from '../../kernel/errors.js';
import { RPC } from '../../wire/methods.js';
import type { RemoteTools } from './remote-tools.js';

const unsupported = /^(?:prompts|resources|completion|logging)\//;

/** How long requests wait for the manifest of a host if no tools are known. */
const toolsMs = 5_000;
const greetingMs = 1_000;
/** How long requests wait if there is a list of an earlier run. */
const oldListMs = 1_000;

/** The greeting waits too, so that the client is not told at once that the list has changed. */
const waitsMs: ReadonlyMap<string, number> = new Map([
  ['initialize', greetingMs],
  ['server/discover', greetingMs],
  ['tools/list', toolsMs],
  ['tools/call', toolsMs],
]);

export function toolsOnly(router: Router, tools: RemoteTools): Router {
  /** Resolves with an error if no tools are known. */
  const learned = (limitMs: number): Promise<HostError | undefined> =>
    tools.ready(limitMs).then(
      () => undefined,
      (error: HostError) => (tools.hasManifest ? undefined : error),
    );
  let oldList = tools.hasManifest ? learned(oldListMs) : undefined;
  void oldList?.then(() => {
    oldList = undefined;
  });
  const handle = (exchange: Exchange): void => {
    const { method } = exchange;
    if (unsupported.test(method))
      return exchange.fail({ code: RPC.methodNotFound, message: 'method not found: a worker has tools only' });
    const limitMs = waitsMs.get(method);
    if (limitMs === undefined) return router.handle(exchange);
    const wait = tools.hasManifest ? oldList : learned(limitMs);
    if (wait === undefined) return router.handle(exchange);
    void wait.then((error) => {
      if (error && limitMs === toolsMs) fail(exchange, error);
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
