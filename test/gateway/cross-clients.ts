/**
 * Many concurrent clients at one gateway, all with the same request ids. Each may see only its own texts. Not here: the clients
 * (raw-clients.ts), the server that writes the texts (fakes/nonce-server.mjs).
 *
 * Invariant: a message is judged by its content, never by its route.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../../src/kernel/random.js';
import { randomInt } from '../../src/kernel/random.js';
import { type Json, legacyClient, type Message, modernClient, type RawClient } from './raw-clients.js';

export interface Tally {
  calls: number;
  /** Answered with the requested text. */
  answered: number;
  /** Refused by Hostler, because the server had ended. */
  refused: number;
  /** The connection was cut by the client before the answer came. */
  cut: number;
  /** Neither answered, refused nor cut. Protocol errors count here, because every call is well-formed. */
  lost: number;
  progress: number;
  updates: number;
  reconnects: number;
  /** Descriptions of messages that reached the wrong client. Bounded. */
  wrong: string[];
}

const wrongMax = 20;
/** Calls in flight per client, so that answers arrive in another order also within one session. */
const inFlight = 4;
const sleepMsMax = 15;
/** Limit of the wait after a refusal. Without a wait, a client would spend all its calls while the server restarts. */
const waitMsMax = 1_000;

const newTally = (): Tally => ({
  calls: 0,
  answered: 0,
  refused: 0,
  cut: 0,
  lost: 0,
  progress: 0,
  updates: 0,
  reconnects: 0,
  wrong: [],
});

/** Nonces and names of callers in a message: `caller07#12`, `nonce://caller07`. */
const callerIn = /caller\d+/g;

/**
 * Judges one message by its text. `nonces`: nonces of the requests in flight of this client, by id. Returns a description of the
 * fault, or undefined.
 */
export function misdelivered(
  caller: string,
  nonces: ReadonlyMap<number, string>,
  message: Message,
  asked: number | undefined,
): string | undefined {
  const text = JSON.stringify(message);
  const others = (text.match(callerIn) ?? []).filter((each) => each !== caller);
  if (others.length > 0) return `${caller} got what was for ${others[0]}: ${text.slice(0, 300)}`;
  if (message.method === 'notifications/progress') {
    const token = message.params?.progressToken;
    const nonce = typeof token === 'number' ? nonces.get(token) : undefined;
    const isOurs = nonce !== undefined && message.params?.message === `${caller}#${nonce}` && token === asked;
    return isOurs ? undefined : `${caller} heard of progress of another call: ${text.slice(0, 300)}`;
  }
  if (message.method !== undefined) return undefined;
  return message.id === asked ? undefined : `${caller} got an answer to ${String(message.id)} in the one to ${asked}`;
}

const textOf = (message: Message): string => {
  const [block] = (message.result?.content ?? []) as { text?: string }[];
  return block?.text ?? '';
};
/** A well-formed call that is refused gets a tool result with the reason in `_meta`. */
const refusalOf = ({ result }: Message): { retryAfterMs?: number } | undefined =>
  result?.isError === true ? ((result._meta as Json | undefined)?.['hostler/error'] as Json | undefined) : undefined;

export interface CrossClients {
  readonly url: string;
  readonly clients: number;
  readonly callsEach: number;
  readonly random: Random;
  readonly prefix: string;
}

/** Runs all clients to the end. Half of them are modern, half legacy. */
export async function crossClients({ url, clients, callsEach, random, prefix }: CrossClients): Promise<Tally> {
  const tally = newTally();
  const names = Array.from({ length: clients }, (_, at) => `caller${String(at).padStart(2, '0')}`);
  await Promise.all(names.map((caller, at) => runClient(caller, at % 2 === 0)));
  return tally;

  async function runClient(caller: string, isModern: boolean): Promise<void> {
    const nonces = new Map<number, string>();
    const heard = (message: Message, asked: number | undefined): void => {
      const wrong = misdelivered(caller, nonces, message, asked);
      if (wrong !== undefined && tally.wrong.length < wrongMax) tally.wrong.push(wrong);
      if (message.method === 'notifications/progress') tally.progress += 1;
      if (message.method === 'notifications/resources/updated') tally.updates += 1;
    };
    const client = isModern ? modernClient(url, heard) : await legacyClient(url, heard);
    await client.watch(`nonce://${caller}`);
    let next = 1;
    // A client drops its connections only between rounds, so calls that are cut during a round are cut on purpose.
    while (next <= callsEach) {
      const until = Math.min(callsEach, next + 24);
      const round = async (): Promise<void> => {
        while (next <= until) {
          const id = next;
          next += 1;
          await oneCall(client, caller, nonces, id);
        }
      };
      await Promise.all(Array.from({ length: inFlight }, round));
      if (next <= callsEach && random() < 0.3) {
        await client.reconnect();
        tally.reconnects += 1;
      }
    }
    await client.close();
  }

  async function oneCall(client: RawClient, caller: string, nonces: Map<number, string>, id: number): Promise<void> {
    tally.calls += 1;
    const nonce = `${id}-${randomInt(random, 0, 1_000_000_000)}`;
    nonces.set(id, nonce);
    const isCached = random() < 0.2;
    const key = `k${randomInt(random, 0, 3)}`;
    const ms = randomInt(random, 0, sleepMsMax);
    const cut = random() < 0.05 ? { afterMs: randomInt(random, 0, sleepMsMax) } : undefined;
    const answer = isCached
      ? await client.call(id, `${prefix}echo_cached`, { caller, key }, cut)
      : await client.call(id, `${prefix}echo_later`, { caller, nonce, ms }, cut);
    const wanted = JSON.stringify(isCached ? { caller, key } : { caller, nonce });
    if (answer === undefined) tally[cut === undefined ? 'lost' : 'cut'] += 1;
    else if (textOf(answer) === wanted) tally.answered += 1;
    else if (refusalOf(answer)) {
      tally.refused += 1;
      await sleep(Math.min(refusalOf(answer)?.retryAfterMs ?? 0, waitMsMax));
    } else if (answer.error !== undefined) tally.lost += 1;
    else if (tally.wrong.length < wrongMax) tally.wrong.push(`${caller} asked for ${wanted} and got ${textOf(answer)}`);
  }
}
