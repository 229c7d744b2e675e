/** Formats a tool as a signature in the style of TypeScript, and makes an example of its arguments. */
import { quoted } from '../../kernel/shell-word.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import {
  alternativesOf,
  isSchema,
  type Kind,
  kindsOf,
  propertiesOf,
  requiredOf,
  resolved,
  type Schema,
  valuesOf,
} from './schema-types.js';

const depthMax = 4;
const membersMax = 40;
const nameChars = 128;

/** `search(query: string, limit?: integer)`, required parameters first. */
export function signatureOf(tool: string, schema: Schema): string {
  return `${neutraliseLine(tool, nameChars)}(${membersOf(schema, schema, 0).join(', ')})`;
}

function membersOf(schema: Schema, root: Schema, depth: number): string[] {
  const required = new Set(requiredOf(schema));
  const entries = Object.entries(propertiesOf(schema)).sort(
    ([a], [b]) => Number(required.has(b)) - Number(required.has(a)),
  );
  const shown = entries
    .slice(0, membersMax)
    .map(([name, type]) => `${quotedName(name)}${required.has(name) ? '' : '?'}: ${typeText(type, root, depth + 1)}`);
  return entries.length > membersMax ? [...shown, '...'] : shown;
}

const quotedName = (name: string): string => (/^[\w$]+$/.test(name) ? name : JSON.stringify(name));

function typeText(given: unknown, root: Schema, depth = 0): string {
  const schema = resolved(given, root);
  if (!schema) return 'unknown';
  const values = valuesOf(schema);
  if (values)
    return values
      .slice(0, membersMax)
      .map((value) => JSON.stringify(value))
      .join(' | ');
  const among = alternativesOf(schema);
  if (among && depth < depthMax) return [...new Set(among.map((each) => typeText(each, root, depth + 1)))].join(' | ');
  const kinds = kindsOf(schema, root);
  return kinds ? [...kinds].map((kind) => kindText(kind, schema, root, depth)).join(' | ') : 'unknown';
}

function kindText(kind: Kind, schema: Schema, root: Schema, depth: number): string {
  if (depth >= depthMax) return kind;
  if (kind === 'array') {
    const item = typeText(schema.items, root, depth + 1);
    return item.includes(' | ') && !item.startsWith('{') ? `(${item})[]` : `${item}[]`;
  }
  if (kind !== 'object' || !isSchema(schema.properties)) return kind;
  return `{ ${membersOf(schema, root, depth).join(', ')} }`;
}

/** The arguments of a call with every required parameter: `query=text limit=1`. */
export function exampleArguments(schema: Schema): string {
  const properties = propertiesOf(schema);
  const names = requiredOf(schema).slice(0, membersMax);
  const words = names.map((name) => exampleArgument(name, properties[name], schema));
  // Otherwise a parameter such as `--config` would be an option of the pasted command.
  return (names.some((name) => name.startsWith('-')) ? ['--', ...words] : words).join(' ');
}

const examples: Readonly<Record<Kind, string>> = {
  ...{ string: '=text', integer: '=1', number: '=1.5', boolean: '=true', null: '=null' },
  ...{ array: ":='[]'", object: ":='{}'" },
};

function exampleArgument(name: string, given: unknown, root: Schema): string {
  const shown = quoted(neutraliseLine(name, nameChars));
  const [first] = valuesOf(resolved(given, root) ?? {}) ?? [];
  if (typeof first === 'string' && /^[\w.-]+$/.test(first)) return `${shown}=${first}`;
  const [kind] = kindsOf(given, root) ?? [];
  return `${shown}${examples[kind ?? 'string'] ?? '=text'}`;
}
