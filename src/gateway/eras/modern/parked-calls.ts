/**
 * The calls that are parked, found by the handle in a client's `requestState`, and how many there may be.
 * Not here: what happens to one of them (parked-call.ts).
 */
import { ByteBudget } from '../../../kernel/byte-budget.js';
import { newId } from '../../../kernel/random.js';
import type { BridgedRequest, Relayed } from '../../bridge/bridged-request.js';

export const parkedMax = 256;
export const parkedPerPrincipalMax = 16;
/** Answers that wait for their client to come back, all together. */
export const heldBytesMax = 64 * 1024 * 1024;

export interface Resumable {
  /** Undefined: nothing waits for this round. */
  resume(round: number, request: BridgedRequest): Promise<Relayed> | undefined;
}

export class ParkedCalls {
  readonly #byId = new Map<string, Resumable>();
  readonly #perPrincipal = new Map<string, number>();
  /** Bytes of the answers that wait. */
  readonly answerBytes = new ByteBudget(heldBytesMax);

  get size(): number {
    return this.#byId.size;
  }

  /** The id of its new place; undefined: there is none left. */
  add(call: Resumable, principal: string): string | undefined {
    const own = this.#perPrincipal.get(principal) ?? 0;
    if (this.#byId.size >= parkedMax || own >= parkedPerPrincipalMax) return undefined;
    const id = newId();
    this.#byId.set(id, call);
    this.#perPrincipal.set(principal, own + 1);
    return id;
  }

  remove(id: string, principal: string): void {
    if (!this.#byId.delete(id)) return;
    const left = (this.#perPrincipal.get(principal) ?? 1) - 1;
    if (left > 0) this.#perPrincipal.set(principal, left);
    else this.#perPrincipal.delete(principal);
  }

  get(id: string): Resumable | undefined {
    return this.#byId.get(id);
  }
}
