/**
 * Finds the era of a server on an open connection, and opens it: eras are tried from the newest on.
 * On a pipe a slow server may be silent at first. So after a silence the request of the next era is sent too, and the answer to
 * the first request still decides. Over HTTP each request waits for its answer.
 * Not here: the opening requests (eras/), a second start and the fallback to HTTP+SSE (open-session.ts).
 *
 * Invariant: the peer adopts an era once, when the era is known. The opening requests change nothing.
 */
import { type Clock, sleep } from '../kernel/clock.js';
import type { Channel } from '../wire/channel.js';
import { ALL_VERSIONS, ERAS, eraNamed } from './eras/eras.js';
import { noCommonVersion, type Opening, type ServerEra, type ServerFacts } from './eras/server-era.js';

export interface Negotiation extends Omit<Opening, 'versions'> {
  readonly clock: Clock;
  /** Newest era to try. Undefined: all eras. */
  readonly newest: ServerEra | undefined;
}

/** After this silence of a pipe the request of the next era is sent. */
const silenceMs = 2_000;
const silent = Symbol('silent');

/** An attached transport may be of either kind. Treating it as a pipe costs at most one extra request. */
const pipes: ReadonlySet<Channel['kind']> = new Set(['stdio', 'memory', 'attached']);

export async function negotiate(context: Negotiation): Promise<ServerFacts> {
  const { peer, newest } = context;
  const eras = newest ? ERAS.slice(ERAS.indexOf(newest)) : ERAS;
  const facts = await open({ ...context, versions: ALL_VERSIONS }, eras);
  const era = eraNamed(facts.era);
  peer.adopt({ era, version: facts.version });
  era.entered?.(peer);
  return facts;
}

async function open(context: Negotiation & Opening, [era, ...older]: readonly ServerEra[]): Promise<ServerFacts> {
  if (!era) throw noCommonVersion(context, 'speaks no protocol version that Hostler speaks');
  const { clock, peer } = context;
  const asked = era.open(context);
  if (older.length === 0 || !pipes.has(peer.channel.kind)) return (await asked) ?? open(context, older);

  const answered = new AbortController();
  const silence = sleep(clock, silenceMs, answered.signal).then(() => silent);
  const first = await Promise.race([asked, silence]).finally(() => answered.abort());
  if (first !== silent) return (first as ServerFacts | undefined) ?? open(context, older);

  // A slow server answers both requests in order, and the answer to the first one wins. A server that ignores the first request
  // is recognised by its answer to the second.
  const opened = open(context, older);
  const judged = asked.then((facts) => facts ?? opened);
  judged.catch(() => {});
  // Both answers may arrive in one chunk: wait one turn of the event loop for the answer to the first request.
  const openedAlone = opened.then(
    (facts) => sleep(clock, 0).then(() => facts),
    () => judged,
  );
  return Promise.race([judged, openedAlone]);
}
