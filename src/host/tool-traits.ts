/**
 * What a tool's annotations say about repeating it. Absent hints have the protocol's defaults (not read-only, destructive,
 * not idempotent), and hints that contradict each other are believed in nothing.
 */
import type { ToolTraits } from '../policy/call.js';
import { memberBytes, memberText } from '../wire/json-members.js';

export function toolTraits(tool: Buffer, isTrusted: boolean): ToolTraits {
  const annotations = memberBytes(tool, 'annotations');
  const says = (hint: string) => (annotations ? memberText(annotations, hint) : undefined);
  const isReadOnly = says('readOnlyHint') === 'true';
  const contradicts = isReadOnly && says('destructiveHint') === 'true';
  return {
    isReadOnly: isReadOnly && !contradicts,
    isIdempotent: says('idempotentHint') === 'true' && !contradicts,
    isTrusted,
  };
}
