/**
 * What a client says it can do, read from its own bytes only where somebody asks: most requests are answered before anybody
 * does.
 * Not here: where the bytes lie (envelope.ts), what capabilities are good for (bridge/).
 */
import { isObject, memberBytes, membersBytes } from '../../wire/json-members.js';
import type { ClientCapabilities } from '../exchange.js';

const none = Buffer.from('{}');

export class DeclaredCapabilities implements ClientCapabilities {
  readonly raw: Buffer;

  /** Anything but an object says nothing. */
  constructor(raw: Buffer | undefined) {
    this.raw = isObject(raw) ? raw : none;
  }

  /** Most clients say nothing, with every request. */
  get #isEmpty(): boolean {
    return this.raw.length === none.length;
  }

  /** Naming neither way means by form: the only one there was when it was first declared. */
  get elicitation(): boolean {
    if (this.#isEmpty) return false;
    const elicitation = memberBytes(this.raw, 'elicitation');
    if (!isObject(elicitation)) return false;
    const [form, url] = membersBytes(elicitation, ['form', 'url']);
    return isObject(form) || !isObject(url);
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
