/**
 * Protocol revision 2026-07-28, towards a server: no handshake, metadata in every request, no requests of the server, and over
 * HTTP no session and no resumable stream.
 */
import { isHostError } from '../../../kernel/errors.js';
import { refusesProtocol } from '../../../transports/http/http-errors.js';
import type { MetaEdits } from '../../../wire/json-edit.js';
import { memberBytes, memberString } from '../../../wire/json-members.js';
import { RPC } from '../../../wire/methods.js';
import type { Answer } from '../../../wire/peer-interface.js';
import type { RequestMeta } from '../../request-params.js';
import { parseMember, readRpcError, resultOf } from '../../rpc-response.js';
import { CheckedRequests } from '../checked-requests.js';
import {
  type ClientIdentity,
  capabilitiesOf,
  noCommonVersion,
  type Opening,
  type ServerEra,
  type ServerFacts,
} from '../server-era.js';
import { isModernError, META, MODERN_ERRORS, MODERN_VERSION } from './protocol.js';
import { MirroredHeaders } from './tool-headers.js';

const discoverMethod = 'server/discover';

export const modernEra: ServerEra = {
  name: 'modern',
  versions: [MODERN_VERSION],
  hasServerRequests: false,
  // A server ends a subscription over stdio by cancelling it.
  hasServerCancel: true,
  closeCancels: true,
  hasHttpSession: false,
  mirrorsRequests: true,
  openingVersion: MODERN_VERSION,
  livenessMethod: discoverMethod,
  hasListenStream: true,
  hasHttpSse: false,
  logLevelSource: 'request',
  asksInResults: true,
  asksInErrors: false,
  typesResults: true,
  reservesErrorCodes: true,
  requestMeta,
  open: (opening) => discover(opening, false),
  newHttpSession: ({ server, peer, clock, over, ask }) =>
    new CheckedRequests({ server, peer, clock, over, ask, isOwnError, isForeignError }),
  newMirror: () => new MirroredHeaders(),
};

/**
 * A modern server answers an unknown method with 404 and this code. But it knows `tools/call`: for that method, the code may
 * come from a server of another era.
 */
const isOwnError = (code: number, method: string): boolean =>
  code === RPC.methodNotFound
    ? method !== 'tools/call'
    : isModernError(code) && code !== MODERN_ERRORS.unsupportedVersion;

const isForeignError = (code: number, method: string): boolean =>
  code === RPC.invalidRequest ||
  code === MODERN_ERRORS.unsupportedVersion ||
  (code === RPC.methodNotFound && method === 'tools/call');

/** Returns JSON text, built once per connection. */
function requestMeta({ name, version, capabilities }: ClientIdentity): RequestMeta {
  const ours = JSON.stringify(capabilities);
  const fixed: MetaEdits = [
    [META.version, JSON.stringify(MODERN_VERSION)],
    [META.clientInfo, JSON.stringify({ name, version })],
  ];
  const fixedMembers = fixed.map(([key, json]) => `"${key}":${json}`).join(',');
  const members = (own: string) => `${fixedMembers},"${META.clientCapabilities}":${own}`;
  const ourMembers = members(ours);
  return {
    members: (own) => (own === undefined ? ourMembers : members(own)),
    edits: (own = ours) => [...fixed, [META.clientCapabilities, own]],
  };
}

async function discover(opening: Opening, isRetry: boolean): Promise<ServerFacts | undefined> {
  const { peer, client, deadlineAtMs, signal } = opening;
  const params = `{"_meta":{${requestMeta(client).members()}}}`;
  const http = { opens: modernEra };
  let answer: Answer;
  try {
    answer = await peer.request(discoverMethod, params, { deadlineAtMs, signal, uncancellable: true, http });
  } catch (error) {
    const { httpStatus, rpcCode } = isHostError(error) ? error.details : {};
    if (!refusesProtocol(httpStatus) || (rpcCode !== undefined && isModernError(rpcCode))) throw error;
    return undefined;
  }
  if (answer.kind === 'error') return refused(opening, answer, isRetry);
  const offered = parseMember(answer.bytes, 'supportedVersions');
  // An older server that answers every request with an empty result has not understood this one.
  return Array.isArray(offered) ? agree(opening, offered, answer.bytes) : undefined;
}

async function refused(opening: Opening, answer: Answer, isRetry: boolean): Promise<ServerFacts | undefined> {
  const { code, data } = readRpcError(answer.bytes);
  if (!isModernError(code)) return undefined;
  if (code !== MODERN_ERRORS.unsupportedVersion) resultOf(answer, opening.server, discoverMethod, opening.clean);
  const supported = data && parseMember(data, 'supported');
  // The server refused the version that it offers itself. The specification then lets the client try again.
  if (!isRetry && Array.isArray(supported) && supported.includes(MODERN_VERSION)) return discover(opening, true);
  return agree(opening, supported, undefined);
}

/** `raw`: result of `server/discover`, if any. Undefined: the server offers versions of other eras. */
function agree(opening: Opening, offered: unknown, raw: Buffer | undefined): ServerFacts | undefined {
  const versions: unknown[] = Array.isArray(offered) ? offered : [];
  if (raw && versions.includes(MODERN_VERSION)) return factsOf(raw);
  if (opening.versions.some((version) => version !== MODERN_VERSION && versions.includes(version))) return undefined;
  throw noCommonVersion(opening, 'speaks no protocol version that Hostler speaks');
}

function factsOf(result: Buffer): ServerFacts {
  const raw = Buffer.from(result);
  const meta = memberBytes(raw, '_meta');
  return {
    era: modernEra.name,
    version: MODERN_VERSION,
    capabilities: capabilitiesOf(raw),
    serverInfo: meta && memberBytes(meta, META.serverInfo),
    instructions: memberString(raw, 'instructions'),
    raw,
  };
}
