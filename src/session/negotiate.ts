/**
 * Finds out, on an open connection, which era the server speaks, and opens it: the eras are tried from the newest on.
 * On a pipe a slow server may answer nothing for a while. So after a silence the next era's request is sent behind the unanswered
 * one instead of in its place, and the answer to the first still decides. Over HTTP each request waits for its answer.
 * Not here: the opening requests (eras/), starting a server again or falling back to HTTP+SSE (open-session.ts).
 *
 * Invariant: asking changes nothing. The agreement is put in force once, when the era is known.
 */
import { type Clock, sleep } from '../kernel/clock.js';
import type { Channel } from '../wire/channel.js';
import { ALL_VERSIONS, ERAS, eraNamed } from './eras/eras.js';
import { noCommonVersion, type Opening, type ServerEra, type ServerFacts } from './eras/server-era.js';

export interface Negotiation extends Omit<Opening, 'versions'> {
  readonly clock: Clock;
  /** The newest era to try; all when undefined. */
  readonly newest: ServerEra | undefined;
}

/** How long a pipe may stay silent before the next era's request is sent. */
const silenceMs = 2_000;
const silent = Symbol('silent');

/** An attached transport may be of either kind. Treated like a pipe, it is asked at most once too often. */
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

  // A server answers both requests in order once it is up. The first counts if it is answered at all; a server that ignores it
  // is known by its answer to the second.
  const opened = open(context, older);
  const judged = asked.then((facts) => facts ?? opened);
  judged.catch(() => {});
  // One turn of the event loop for answers in one chunk: the answer to the first request may be right behind.
  const openedAlone = opened.then(
    (facts) => sleep(clock, 0).then(() => facts),
    () => judged,
  );
  return Promise.race([judged, openedAlone]);
}
