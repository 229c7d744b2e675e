/**
 * Pure state machine of one call from a modern client to a legacy server that may send questions during the call.
 * When the server asks, the call to it stays open and the client gets `input_required`. The client's next request continues the call.
 * Also `StateSeal`, which encrypts the `requestState` that the client sends with that request.
 * Not here: timers, promises and the server's requests (parked-call.ts).
 * Invariants: `over` is final. Every server request is answered, refused or withdrawn once. Each wait of the client ends once.
 */
import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto';
import type { Clock } from '../../../kernel/clock.js';
import type { Principal } from '../../../policy/operation.js';
import type { StateFault } from './own-answers.js';

export type ParkedState =
  /** The client waits and has not received a question. */
  | { readonly kind: 'running' }
  /** The client waits; the questions `asks` are gathered for one reply. */
  | { readonly kind: 'asking'; readonly asks: readonly string[]; readonly wasParked: boolean }
  /** The client got the questions `open`. `next`: questions that arrived later. `isDone`: the server has answered the call. */
  | {
      readonly kind: 'asked';
      readonly open: readonly string[];
      readonly next: readonly string[];
      readonly isDone: boolean;
    }
  /** The client has answered every question and waits for the result. */
  | { readonly kind: 'answering' }
  | { readonly kind: 'over' };

export type ParkedEvent =
  /** The server sent a question. */
  | { readonly kind: 'ask'; readonly key: string }
  | { readonly kind: 'withdrawn'; readonly key: string }
  /** The gathering time has ended. */
  | { readonly kind: 'gathered' }
  /** The client sent a request with answers to these questions. */
  | { readonly kind: 'resumed'; readonly answered: readonly string[] }
  /** The call to the server was answered or has failed. */
  | { readonly kind: 'finished' }
  /** The client cancelled its request before it was answered. */
  | { readonly kind: 'left' }
  | { readonly kind: 'expired' };

export type ParkedEffect =
  | { readonly do: 'gather' | 'stopGathering' | 'armExpiry' | 'disarmExpiry' }
  /** Answers the waiting client with these questions. */
  | { readonly do: 'reply'; readonly keys: readonly string[] }
  | { readonly do: 'answer' | 'refuse'; readonly key: string }
  /** Answers the waiting client with the server's result. */
  | { readonly do: 'settle' }
  /** Answers the waiting client with an error. */
  | { readonly do: 'giveUp' }
  | { readonly do: 'abort' }
  | { readonly do: 'forget' };

export type ParkedStep = readonly [state: ParkedState, effects: readonly ParkedEffect[]];

export function stepParked(state: ParkedState, event: ParkedEvent): ParkedStep {
  switch (event.kind) {
    case 'ask':
      return ask(state, event.key);
    case 'withdrawn':
      return withdraw(state, event.key);
    case 'gathered':
      if (state.kind !== 'asking') return [state, []];
      return [
        { kind: 'asked', open: state.asks, next: [], isDone: false },
        [{ do: 'reply', keys: state.asks }, { do: 'armExpiry' }],
      ];
    case 'resumed':
      return resume(state, event.answered);
    case 'finished':
      return finish(state);
    case 'left':
      // After a reply the client may disconnect and continue later.
      if (state.kind === 'asked' || state.kind === 'over') return [state, []];
      return [
        over,
        [...stopGathering(state), { do: 'giveUp' }, { do: 'abort' }, ...refuseAll(state), { do: 'forget' }],
      ];
    case 'expired':
      if (state.kind !== 'asked') return [state, []];
      return [over, [{ do: 'abort' }, ...refuseAll(state), { do: 'forget' }]];
    default:
      return event satisfies never;
  }
}

const over: ParkedState = { kind: 'over' };

function ask(state: ParkedState, key: string): ParkedStep {
  switch (state.kind) {
    case 'running':
    case 'answering':
      return [{ kind: 'asking', asks: [key], wasParked: state.kind === 'answering' }, [{ do: 'gather' }]];
    case 'asking':
      return [{ ...state, asks: [...state.asks, key] }, []];
    case 'asked':
      return state.isDone ? [state, [{ do: 'refuse', key }]] : [{ ...state, next: [...state.next, key] }, []];
    case 'over':
      return [state, [{ do: 'refuse', key }]];
    default:
      return state satisfies never;
  }
}

function withdraw(state: ParkedState, key: string): ParkedStep {
  const without = (keys: readonly string[]) => keys.filter((each) => each !== key);
  if (state.kind === 'asked') return [{ ...state, open: without(state.open), next: without(state.next) }, []];
  if (state.kind !== 'asking') return [state, []];
  const asks = without(state.asks);
  if (asks.length > 0) return [{ ...state, asks }, []];
  return [{ kind: state.wasParked ? 'answering' : 'running' }, [{ do: 'stopGathering' }]];
}

function resume(state: ParkedState, answered: readonly string[]): ParkedStep {
  if (state.kind !== 'asked') return [state, []];
  if (state.isDone) return [over, [{ do: 'disarmExpiry' }, { do: 'settle' }, { do: 'forget' }]];
  const given = state.open.filter((key) => answered.includes(key));
  const asks = [...state.open.filter((key) => !given.includes(key)), ...state.next];
  const effects: ParkedEffect[] = [{ do: 'disarmExpiry' }, ...given.map((key) => ({ do: 'answer', key }) as const)];
  if (asks.length === 0) return [{ kind: 'answering' }, effects];
  return [{ kind: 'asking', asks, wasParked: true }, [...effects, { do: 'gather' }]];
}

function finish(state: ParkedState): ParkedStep {
  switch (state.kind) {
    case 'over':
      return [state, []];
    case 'asked':
      // parked-call.ts stores the result until the client continues the call.
      return [{ ...state, open: [], next: [], isDone: true }, refuseAll(state)];
    default:
      return [over, [...stopGathering(state), { do: 'settle' }, ...refuseAll(state), { do: 'forget' }]];
  }
}

const stopGathering = (state: ParkedState): ParkedEffect[] =>
  state.kind === 'asking' ? [{ do: 'stopGathering' }] : [];

function refuseAll(state: ParkedState): ParkedEffect[] {
  const keys = state.kind === 'asking' ? state.asks : state.kind === 'asked' ? [...state.open, ...state.next] : [];
  return keys.map((key) => ({ do: 'refuse', key }));
}

/** `relayed`: state of a modern server. `parked`: id and round of a parked call. `again`: the request is sent once more. */
export type StateKind = 'relayed' | 'parked' | 'again';

export interface StateOwner {
  readonly server: string;
  readonly principal: Principal;
  readonly identity: Buffer;
}

export type Opened = { readonly kind: StateKind; readonly text: string } | { readonly fault: StateFault };

export const stateLifeMs = 10 * 60_000;
const version = 1;
const nonceBytes = 12;
const tagBytes = 16;
const digestBytes = 32;
const headBytes = 1 + nonceBytes + tagBytes;
const insideBytes = 1 + 8 + 2 * digestBytes;
const kinds: readonly StateKind[] = ['relayed', 'parked', 'again'];

/**
 * Encrypts `requestState`, because the state of a server may contain secrets, and binds it to a caller, a request and a time.
 * Layout, base64url: version (1) | nonce (12) | tag (16) | ciphertext.
 * Plaintext: kind (1) | expiry, ms (8) | caller digest (32) | request digest (32) | the sealed text.
 * The digests are encrypted, not GCM associated data. So "wrong caller" and "tampered" are reported as different faults.
 * Invariant: no plaintext is used before the GCM tag is verified.
 */
export class StateSeal {
  readonly #clock: Clock;
  /** The key exists only in memory: after a restart, or in another process, a state cannot be opened. */
  readonly #key = randomBytes(32);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  seal(kind: StateKind, text: string, owner: StateOwner): string {
    const inside = Buffer.alloc(insideBytes);
    inside[0] = kinds.indexOf(kind);
    inside.writeDoubleBE(this.#clock.date().getTime() + stateLifeMs, 1);
    callerDigest(owner).copy(inside, 9);
    requestDigest(owner).copy(inside, 9 + digestBytes);
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv('aes-256-gcm', this.#key, nonce);
    const sealed = [cipher.update(inside), cipher.update(text, 'utf8'), cipher.final()];
    return Buffer.concat([Buffer.of(version), nonce, cipher.getAuthTag(), ...sealed]).toString('base64url');
  }

  open(state: string, owner: StateOwner): Opened {
    const bytes = Buffer.from(state, 'base64url');
    // Node decodes leniently, so other encodings of the same bytes are refused here.
    if (bytes.length < headBytes + insideBytes || bytes[0] !== version || bytes.toString('base64url') !== state)
      return { fault: 'tampered' };
    const inside = this.#decrypted(bytes);
    if (!inside) return { fault: 'tampered' };
    if (!callerDigest(owner).equals(inside.subarray(9, 9 + digestBytes))) return { fault: 'other_caller' };
    if (!requestDigest(owner).equals(inside.subarray(9 + digestBytes, insideBytes))) return { fault: 'other_request' };
    if (this.#clock.date().getTime() >= inside.readDoubleBE(1)) return { fault: 'expired' };
    return { kind: kinds[inside[0] as number] as StateKind, text: inside.toString('utf8', insideBytes) };
  }

  #decrypted(bytes: Buffer): Buffer | undefined {
    const decipher = createDecipheriv('aes-256-gcm', this.#key, bytes.subarray(1, 1 + nonceBytes), {
      authTagLength: tagBytes,
    });
    decipher.setAuthTag(bytes.subarray(1 + nonceBytes, headBytes));
    try {
      return Buffer.concat([decipher.update(bytes.subarray(headBytes)), decipher.final()]);
    } catch {
      return undefined;
    }
  }
}

// JSON separates the names unambiguously.
const callerDigest = ({ server, principal }: StateOwner): Buffer =>
  sha256(JSON.stringify([server, principal.id, principal.role ?? null]));

const requestDigest = ({ identity }: StateOwner): Buffer => sha256(identity);

const sha256 = (text: string | Buffer): Buffer => createHash('sha256').update(text).digest();
