/**
 * Reads the types of parameters from the input schema of a tool.
 * Invariant: schemas come from servers, so every walk is bounded in depth and in the number of members.
 */
export type Schema = Readonly<Record<string, unknown>>;

export type Kind = 'string' | 'integer' | 'number' | 'boolean' | 'null' | 'array' | 'object';

const depthMax = 8;
const branchesMax = 32;

export const isSchema = (value: unknown): value is Schema =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export const propertiesOf = ({ properties }: Schema): Schema => (isSchema(properties) ? properties : {});

export const requiredOf = ({ required }: Schema): readonly string[] =>
  Array.isArray(required) ? required.filter((name) => typeof name === 'string') : [];

/** Follows references within `root`. Undefined if there is no such schema. */
export function resolved(schema: unknown, root: Schema): Schema | undefined {
  let found: unknown = schema;
  for (let depth = 0; isSchema(found) && typeof found.$ref === 'string'; depth++) {
    if (depth === depthMax || !found.$ref.startsWith('#')) return undefined;
    const path = found.$ref.slice(1).split('/').slice(1);
    found = path.reduce<unknown>((at, name) => {
      const key = name.replaceAll('~1', '/').replaceAll('~0', '~');
      return isSchema(at) && Object.hasOwn(at, key) ? at[key] : undefined;
    }, root);
  }
  return isSchema(found) ? found : undefined;
}

/** The members of `anyOf`, else of `oneOf`; undefined if the schema has neither. */
export function alternativesOf(schema: Schema): readonly unknown[] | undefined {
  const among = Array.isArray(schema.anyOf) ? schema.anyOf : schema.oneOf;
  return Array.isArray(among) ? among.slice(0, branchesMax) : undefined;
}

export function valuesOf(schema: Schema): readonly unknown[] | undefined {
  if ('const' in schema) return [schema.const];
  return Array.isArray(schema.enum) ? schema.enum : undefined;
}

/** The types that a parameter may have; undefined if the schema allows any, or does not say. */
export function kindsOf(given: unknown, root: Schema, depth = 0): ReadonlySet<Kind> | undefined {
  const schema = resolved(given, root);
  if (!schema || depth > depthMax) return undefined;
  if (schema.type !== undefined) return new Set([schema.type].flat() as Kind[]);
  const values = valuesOf(schema);
  if (values) return new Set(values.map(kindOfValue));
  const among = alternativesOf(schema);
  if (among) {
    const kinds = among.map((each) => kindsOf(each, root, depth + 1));
    return kinds.every((each) => each !== undefined) ? new Set(kinds.flatMap((each) => [...each])) : undefined;
  }
  const [first] = Array.isArray(schema.allOf) ? schema.allOf : [];
  return first === undefined ? undefined : kindsOf(first, root, depth + 1);
}

export function kindOfValue(value: unknown): Kind {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  if (typeof value === 'number') return Number.isInteger(value) ? 'integer' : 'number';
  return typeof value as Kind;
}
