/**
 * The answer to a legacy client's `initialize`.
 * Not here: which version is spoken, and the session (the ingress).
 */
import type { Client } from '../exchange.js';
import type { View } from '../views/view.js';
import { capabilitiesOf, infoOf, instructionsOf } from './offer.js';
import type { ServerFacts } from './server-facts.js';

/** One result object. */
export function initializeResult(client: Client, view: View, facts: ServerFacts): string {
  const instructions = instructionsOf(view);
  const said = instructions === undefined ? '' : `,"instructions":${JSON.stringify(instructions)}`;
  return `{"protocolVersion":${JSON.stringify(client.version)},"capabilities":${capabilitiesOf(view)},"serverInfo":${infoOf(view, facts)}${said}}`;
}
