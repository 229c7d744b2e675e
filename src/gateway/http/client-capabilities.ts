/** What a client says it can do, read from its own bytes only where somebody asks. */
import { memberBytes } from '../../wire/json-members.js';
import type { ClientCapabilities } from '../exchange.js';

const OPEN_BRACE = 0x7b;
const none = Buffer.from('{}');

/** Anything but an object says nothing. */
export const isObject = (bytes: Buffer | undefined): bytes is Buffer => bytes?.[0] === OPEN_BRACE;

export class SaidCapabilities implements ClientCapabilities {
  readonly raw: Buffer;

  constructor(raw: Buffer | undefined) {
    this.raw = isObject(raw) ? raw : none;
  }

  /** Most clients say nothing, with every request. */
  get #isEmpty(): boolean {
    return this.raw.length === none.length;
  }

  get elicitation(): boolean {
    return !this.#isEmpty && isObject(memberBytes(this.raw, 'elicitation'));
  }

  get elicitationUrl(): boolean {
    if (this.#isEmpty) return false;
    const elicitation = memberBytes(this.raw, 'elicitation');
    return isObject(elicitation) && isObject(memberBytes(elicitation, 'url'));
  }

  get sampling(): boolean {
    return !this.#isEmpty && isObject(memberBytes(this.raw, 'sampling'));
  }

  get roots(): boolean {
    return !this.#isEmpty && isObject(memberBytes(this.raw, 'roots'));
  }
}
