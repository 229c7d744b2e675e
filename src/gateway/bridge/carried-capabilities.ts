/**
 * What a modern server is told that the client can do: what the client wrote, less what would not come through here.
 * Extensions bring methods and results of their own, which somebody must route; only those that need nothing of it pass.
 */
import { memberBytes, membersBytes } from '../../wire/json-members.js';
import type { Client } from '../exchange.js';

const asked = ['elicitation', 'sampling', 'roots'] as const;
const passed = ['experimental'] as const;
const extension = 'io.modelcontextprotocol/ui';

/** The shortest object that says anything at all is longer. */
const emptyBytes = '{"a":1}'.length;

/** Written once for each session; a modern client declares anew with every request. */
const written = new WeakMap<Client['capabilities'], string>();

/** One JSON object. `isReachable` false: nobody can be asked, whatever was declared. */
export function carriedCapabilities({ capabilities }: Client, isReachable: boolean): string {
  if (capabilities.raw.length < emptyBytes) return '{}';
  if (!isReachable) return render(capabilities.raw, passed);
  let text = written.get(capabilities);
  if (text === undefined) {
    text = render(capabilities.raw, [...asked, ...passed]);
    written.set(capabilities, text);
  }
  return text;
}

function render(raw: Buffer, keys: readonly string[]): string {
  const values = membersBytes(raw, [...keys, 'extensions']);
  const members = keys.flatMap((key, i) => (values[i] ? [`"${key}":${values[i].toString('utf8')}`] : []));
  const extensions = values[keys.length];
  const settings = extensions && memberBytes(extensions, extension);
  if (settings) members.push(`"extensions":{"${extension}":${settings.toString('utf8')}}`);
  return `{${members.join(',')}}`;
}
