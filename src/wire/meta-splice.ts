/**
 * Sets members of `params._meta` in raw bytes and leaves every other byte as it came.
 * This is how a relayed call gets our progress token and the modern era's per-request metadata without being parsed.
 */
import { HostError } from '../kernel/errors.js';
import { readString } from './envelope.js';
import { eachMember, skipSpace } from './json-scan.js';

/** Member name → its value as JSON text, or undefined to take the member out. */
export type MetaEdits = ReadonlyArray<readonly [name: string, json: string | undefined]>;

/** `params` must be one JSON object; absent params become one that holds only `_meta`. */
export function spliceMeta(params: Uint8Array | undefined, edits: MetaEdits): Buffer {
  if (!params) return Buffer.from(`{"_meta":{${render(edits)}}}`);
  const bytes = Buffer.from(params.buffer, params.byteOffset, params.byteLength);
  let metaStart = -1;
  let metaEnd = -1;
  let members = 0;
  const after = eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    members++;
    if (readString(bytes, keyStart, keyEnd) !== '_meta') return;
    if (metaStart >= 0) throw ambiguous('params has two _meta members');
    metaStart = valueStart;
    metaEnd = valueEnd;
  });
  if (after < 0 || skipSpace(bytes, after, bytes.length) !== bytes.length)
    throw ambiguous('params is not one JSON object');
  const added = render(edits);
  if (metaStart < 0) {
    const open = bytes.indexOf(0x7b) + 1;
    return Buffer.concat([
      bytes.subarray(0, open),
      Buffer.from(`"_meta":{${added}}${members > 0 ? ',' : ''}`),
      bytes.subarray(open),
    ]);
  }
  const kept = keptMembers(bytes, metaStart, metaEnd, new Set(edits.map(([name]) => name)));
  const glue = kept.length > 0 && added !== '' ? ',' : '';
  return Buffer.concat([
    bytes.subarray(0, metaStart),
    Buffer.from(`{${added}${glue}`),
    ...kept,
    Buffer.from('}'),
    bytes.subarray(metaEnd),
  ]);
}

/** The members of the old `_meta` that are not replaced, as slices with commas between them. */
function keptMembers(bytes: Buffer, start: number, end: number, replaced: ReadonlySet<string>): Buffer[] {
  const kept: Buffer[] = [];
  const after = eachMember(bytes, start, end, 1, ({ keyStart, keyEnd, valueEnd }) => {
    if (replaced.has(readString(bytes, keyStart, keyEnd))) return;
    if (kept.length > 0) kept.push(comma);
    kept.push(bytes.subarray(keyStart - 1, valueEnd));
  });
  if (after !== end) throw ambiguous('params._meta is not an object');
  return kept;
}

const comma = Buffer.from(',');

const render = (edits: MetaEdits): string =>
  edits
    .filter(([, json]) => json !== undefined)
    .map(([name, json]) => `${JSON.stringify(name)}:${json}`)
    .join(',');

const ambiguous = (what: string) =>
  new HostError('invalid_arguments', what, {
    field: 'params._meta',
    execution: 'not_executed',
    hint: 'send params as a JSON object with at most one _meta object',
  });
