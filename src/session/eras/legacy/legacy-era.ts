/**
 * The protocol revisions before 2026-07-28, towards a server: `initialize` opens a connection, the server may send requests,
 * and HTTP has sessions.
 */
import { memberBytes, memberString } from '../../../wire/json-members.js';
import { NOTIFICATION } from '../../../wire/methods.js';
import { quote, resultOf } from '../../rpc-response.js';
import { httpSseRequests } from '../checked-requests.js';
import { capabilitiesOf, noCommonVersion, type Opening, type ServerEra, type ServerFacts } from '../server-era.js';
import { LegacyHttpSession } from './http-session.js';
import { isLegacyVersion, LEGACY_VERSIONS, NEWEST_LEGACY_VERSION } from './revisions.js';

export const legacyEra: ServerEra = {
  name: 'legacy',
  versions: LEGACY_VERSIONS,
  hasServerRequests: true,
  // Cancellations by a server concern only its own requests, whose ids can equal ids of Hostler's requests.
  hasServerCancel: false,
  closeCancels: false,
  hasHttpSession: true,
  mirrorsRequests: false,
  openingVersion: undefined,
  livenessMethod: 'ping',
  hasListenStream: false,
  hasHttpSse: true,
  logLevelSource: 'session',
  asksInResults: false,
  asksInErrors: true,
  typesResults: false,
  reservesErrorCodes: false,
  requestMeta: () => undefined,
  open: initialize,
  entered: (peer) => {
    peer.notify(NOTIFICATION.initialized);
    peer.channel.openServerStream?.();
  },
  newHttpSession: (owner) =>
    owner.peer.channel.kind === 'http-sse' ? httpSseRequests(owner) : new LegacyHttpSession(owner),
};

async function initialize(opening: Opening): Promise<ServerFacts> {
  const { server, peer, client, deadlineAtMs, signal, clean } = opening;
  const { name, version: clientVersion, capabilities } = client;
  const clientInfo = { name, version: clientVersion };
  const params = JSON.stringify({ protocolVersion: NEWEST_LEGACY_VERSION, capabilities, clientInfo });
  const http = { opens: legacyEra };
  const answer = await peer.request('initialize', params, { deadlineAtMs, signal, uncancellable: true, http });
  const raw = Buffer.from(resultOf(answer, server, 'initialize', clean));
  const version = memberString(raw, 'protocolVersion') ?? '';
  if (!isLegacyVersion(version)) {
    throw noCommonVersion(opening, `answered initialize with protocol version '${quote(version.slice(0, 64), clean)}'`);
  }
  return {
    era: legacyEra.name,
    version,
    capabilities: capabilitiesOf(raw),
    serverInfo: memberBytes(raw, 'serverInfo'),
    instructions: memberString(raw, 'instructions'),
    raw,
  };
}
