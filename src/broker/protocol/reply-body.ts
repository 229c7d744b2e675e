/**
 * Bodies that a host writes: the outcome of a call, as it is stored in the log, and the manifest of a role.
 * Invariants: results and tool definitions are copied as bytes. A body that cannot be read is an error, never an empty result or list.
 */
import type { ErrorCode, HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { findEra } from '../../session/eras/eras.js';
import type { Era, JsonText } from '../../wire/channel.js';
import { joinedParts } from '../../wire/json-edit.js';
import { isList, isObject, stringOf, uniqueMembers } from '../../wire/json-members.js';
import { eachElement } from '../../wire/json-scan.js';
import { invalid, readError, name as readName, revision as readRevision } from './messages.js';

export type ReplyBody =
  | { readonly kind: 'result'; readonly bytes: Buffer; readonly era: Era }
  | { readonly kind: 'error'; readonly error: HostError };

export interface ManifestTool {
  readonly server: string;
  readonly name: string;
  /** As the server wrote it. */
  readonly raw: Buffer;
}

export interface Manifest {
  /** Hash of the content: the same tools have the same revision on every host. */
  readonly revision: string;
  readonly tools: readonly ManifestTool[];
  /** Set if the host denies the role every tool: the reason. */
  readonly denied?: HostError | undefined;
}

const code: ErrorCode = 'protocol_error';

export const resultBody = (bytes: Buffer, era: Era): Buffer => joinedParts([`{"era":"${era}","result":`, bytes, '}']);

export const errorBody = (error: HostError): Buffer => Buffer.from(`{"error":${JSON.stringify(error.toJSON())}}`);

export function readReplyBody(bytes: Buffer): ReplyBody {
  const [result, era, error] = uniqueMembers(bytes, ['result', 'era', 'error']) ?? [];
  if (isObject(error) && result === undefined) return { kind: 'error', error: readError(error) };
  if (isObject(result) && error === undefined) return { kind: 'result', bytes: result, era: readEra(era) };
  throw invalid('body', 'must have either a result or an error', code);
}

/** A result of an era that this Hostler does not know cannot be translated for its caller. */
function readEra(value: Buffer | undefined): Era {
  const era = value && findEra(stringOf(value) ?? '');
  if (!era) throw invalid('era', 'must name a protocol era that this version knows', code);
  return era.name;
}

export function manifestBody({ revision, tools, denied }: Manifest): Buffer {
  const parts: JsonText[] = [`{"revision":${JSON.stringify(revision)},"tools":[`];
  tools.forEach(({ server, name, raw }, at) => {
    parts.push(`${at ? ',' : ''}{"server":${JSON.stringify(server)},"name":${JSON.stringify(name)},"tool":`, raw, '}');
  });
  return joinedParts([...parts, denied ? `],"denied":${JSON.stringify(denied.toJSON())}}` : ']}']);
}

/** Throws the error that a host sent instead of a manifest. */
export function readManifestBody(bytes: Buffer): Manifest {
  const [revision, tools, denied, error] = uniqueMembers(bytes, ['revision', 'tools', 'denied', 'error']) ?? [];
  if (isObject(error)) throw readError(error);
  if (!isList(tools)) throw invalid('tools', 'must be a list', code);
  const read: ManifestTool[] = [];
  eachElement(tools, 0, tools.length, 0, (start, end) => {
    if (read.length >= LIMITS.toolListItems) throw invalid('tools', 'has too many entries', code);
    const [server, tool, raw] = uniqueMembers(tools.subarray(start, end), ['server', 'name', 'tool']) ?? [];
    if (!isObject(raw)) throw invalid('tools', 'has an entry without a tool', code);
    read.push({ server: readName('server', server, code), name: readName('name', tool, code), raw });
    return undefined;
  });
  return {
    revision: readRevision('revision', revision, code),
    tools: Object.freeze(read),
    denied: isObject(denied) ? readError(denied) : undefined,
  };
}
