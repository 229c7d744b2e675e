/**
 * The answer to a legacy client's `initialize`.
 * Not here: which version is spoken, and the session (the ingress).
 */
import type { Client } from '../../exchange.js';
import { capabilitiesOf, infoOf, instructionsOf } from '../../routing/capabilities.js';
import type { ServerInfoCache } from '../../routing/server-info.js';
import type { View } from '../../views/view.js';

/** One result object. */
export function initializeResult(client: Client, view: View, facts: ServerInfoCache): string {
  const instructions = instructionsOf(view);
  const said = instructions === undefined ? '' : `,"instructions":${JSON.stringify(instructions)}`;
  return `{"protocolVersion":${JSON.stringify(client.version)},"capabilities":${capabilitiesOf(view)},"serverInfo":${infoOf(view, facts)}${said}}`;
}
