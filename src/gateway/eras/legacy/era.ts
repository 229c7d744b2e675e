/**
 * The client era from 2024-11-05 to 2025-11-25, in which `initialize` opens a session.
 * Not here: differences between the revisions of this era (session/eras/legacy/revisions.ts).
 */
import { eraNamed } from '../../../session/eras/eras.js';
import { MODERN_ERRORS } from '../../../session/eras/modern/protocol.js';
import type { Era } from '../../../wire/channel.js';
import { editMembers, type MemberEdits } from '../../../wire/json-edit.js';
import { memberString } from '../../../wire/json-members.js';
import { RPC } from '../../../wire/methods.js';
import { badResult, type ClientEra } from '../era.js';
import { createLegacyBridge } from './bridge.js';
import { LegacyStdio } from './stdio.js';

const notFoundCode = -32002;

/** The last mark finds keys with JSON escapes, which a search for the plain key misses. */
const marks = ['"resultType"', '"ttlMs"', '"cacheScope"', '\\u00'].map((text) => Buffer.from(text));
const removals: MemberEdits = ['resultType', 'ttlMs', 'cacheScope'].map((key) => [key, undefined] as const);

const translateResult: ClientEra['translateResult'] = (bytes, { from }) => {
  if (!eraNamed(from).typesResults || !marks.some((mark) => bytes.includes(mark))) return [bytes];
  const kind = memberString(bytes, 'resultType');
  if (kind !== undefined && kind !== 'complete') return badResult('has a resultType that this client does not support');
  const edited = editMembers(bytes, removals);
  return edited ? [edited] : badResult('is not an object');
};

export const legacyEra: ClientEra = {
  name: 'legacy',
  ownMethods: new Set(['initialize', 'ping', 'logging/setLevel', 'resources/subscribe', 'resources/unsubscribe']),
  logLevelSource: 'session',
  resourceNotFoundCode: notFoundCode,
  needsObjectOutput: true,
  claims: () => true,

  handshakeResult({ version }, { capabilities, serverInfo, instructions }) {
    const more = instructions === undefined ? '' : `,"instructions":${JSON.stringify(instructions)}`;
    return `{"protocolVersion":${JSON.stringify(version)},"capabilities":${capabilities},"serverInfo":${serverInfo}${more}}`;
  },

  listMembers: () => '',
  toolError: (text, facts) =>
    `{"content":[{"type":"text","text":${JSON.stringify(text)}}],"isError":true,"_meta":{${facts}}}`,

  translateResult,

  translateCode(code: number, from: Era, method: string): number {
    if (!eraNamed(from).reservesErrorCodes) return code;
    // The legacy era does not define this code, and the gateway declared the capabilities.
    if (code === MODERN_ERRORS.missingCapability) return RPC.internalError;
    return code === RPC.invalidParams && method === 'resources/read' ? notFoundCode : code;
  },

  createBridge: createLegacyBridge,
  openStdio: (pipe) => new LegacyStdio(pipe),
  loadHttp: async () => (await import('./http.js')).createLegacyHttp,
};
