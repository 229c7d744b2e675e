/**
 * Progress token → whose progress it is. `7` and `"7"` are different tokens.
 */

import { readString } from './envelope.js';
import { findMember } from './json-members.js';

export type ProgressToken = string | number;

export class ProgressMap<T> {
  readonly #owners = new Map<ProgressToken, T>();

  set(token: ProgressToken, owner: T): void {
    this.#owners.set(token, owner);
  }

  has(token: ProgressToken): boolean {
    return this.#owners.has(token);
  }

  delete(token: ProgressToken): void {
    this.#owners.delete(token);
  }

  /** The owner of the token in the params of a progress notification. */
  find(params: Buffer | undefined): T | undefined {
    const span = params && this.#owners.size > 0 ? findMember(params, 'progressToken') : undefined;
    if (!params || !span) return undefined;
    const token =
      params[span.start] === 0x22
        ? readString(params, span.start + 1, span.end - 1)
        : Number(params.toString('latin1', span.start, span.end));
    return this.#owners.get(token);
  }
}
