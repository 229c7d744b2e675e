/**
 * What a client says it can do, read from its own bytes only where somebody asks: most requests are answered before anybody
 * does.
 * Not here: where the bytes lie (client-envelope.ts), what capabilities are good for (bridge/).
 */
import { isObject, memberBytes, membersBytes } from '../../wire/json-members.js';
import type { ClientCapabilities } from '../exchange.js';

const none = Buffer.from('{}');

export class SaidCapabilities implements ClientCapabilities {
  readonly raw: Buffer;

  /** Anything but an object says nothing. */
  constructor(raw: Buffer | undefined) {
    this.raw = isObject(raw) ? raw : none;
  }

  /** Naming neither way means by form: the only one there was when it was first declared. */
  get elicitation(): boolean {
    const elicitation = memberBytes(this.raw, 'elicitation');
    if (!isObject(elicitation)) return false;
    const [form, url] = membersBytes(elicitation, ['form', 'url']);
    return isObject(form) || !isObject(url);
  }

  get elicitationUrl(): boolean {
    const elicitation = memberBytes(this.raw, 'elicitation');
    return isObject(elicitation) && isObject(memberBytes(elicitation, 'url'));
  }

  get sampling(): boolean {
    return isObject(memberBytes(this.raw, 'sampling'));
  }

  get roots(): boolean {
    return isObject(memberBytes(this.raw, 'roots'));
  }
}
