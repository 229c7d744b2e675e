/**
 * Generates the JSON Schema of `hostler.json`, for editors, from the definitions that parse it.
 * Not here: rules beyond types, such as which servers a group may name (src/config/host-config.ts); the description of each key
 * (schema-descriptions.ts).
 */
import * as z from 'zod/mini';
import { identityEntry } from '../../src/config/auth-settings.js';
import { brokerEntry } from '../../src/config/broker-settings.js';
import { clientKeys, descriptiveKeys, unusedKeys } from '../../src/config/client-keys.js';
import { rateLimitEntry, roleEntry, telemetryEntry } from '../../src/config/host-config.js';
import { keyEntry } from '../../src/config/keys.js';
import { listenEntry, logEntry } from '../../src/config/listen-settings.js';
import { secretsEntry } from '../../src/config/secrets/secrets-settings.js';
import { treatment } from '../../src/config/server-definition.js';
import { http, stdio } from '../../src/config/server-spec.js';
import { descriptions } from './schema-descriptions.js';

const name = z.string();
/** Keys of clients, which client-config.ts translates. */
const ofClients = Object.fromEntries(
  [...clientKeys.keys(), ...unusedKeys, ...descriptiveKeys].map((key) => [key, z.optional(z.unknown())]),
);
const written = {
  command: z.union([z.string(), z.array(z.string())]),
  env: z.optional(z.record(name, z.union([z.string(), z.number(), z.boolean(), z.null()]))),
  envFile: z.optional(z.string()),
};
const server = z.union([
  z.strictObject({ ...z.omit(stdio, { name: true }).shape, ...treatment.shape, ...written, ...ofClients }),
  z.strictObject({ ...z.omit(http, { name: true }).shape, ...treatment.shape, ...ofClients }),
]);

const hostConfig = z.strictObject({
  $schema: z.optional(z.string()),
  mcpServers: z.optional(z.record(name, server)),
  roles: z.optional(z.record(name, z.extend(roleEntry, { allow: z.array(z.string()) }))),
  unlistedRole: z.optional(z.enum(['deny', 'allow'])),
  budgets: z.optional(
    z.strictObject({
      principals: z.optional(z.record(name, rateLimitEntry)),
      roles: z.optional(z.record(name, rateLimitEntry)),
    }),
  ),
  groups: z.optional(z.record(name, z.array(z.string()))),
  keys: z.optional(z.record(name, keyEntry)),
  listen: z.optional(listenEntry),
  log: z.optional(logEntry),
  broker: z.optional(brokerEntry),
  telemetry: z.optional(telemetryEntry),
  idleExit: z.optional(z.union([z.number(), z.string()])),
  secrets: z.optional(secretsEntry),
  identity: z.optional(identityEntry),
});

export const hostConfigSchemaKeys: readonly string[] = Object.keys(hostConfig.shape);

interface Schema {
  description?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
}

/** Each key that a user can write, with its schema. `*` in a path stands for the name of an entry. A path can occur twice. */
export function keysIn(
  { properties = {}, additionalProperties, items, anyOf = [] }: Schema,
  at = '',
): [string, Schema][] {
  const members = Object.entries(properties);
  if (typeof additionalProperties === 'object') members.push(['*', additionalProperties]);
  return [
    ...members.flatMap(([key, schema]): [string, Schema][] => {
      const path = at === '' ? key : `${at}.${key}`;
      return [[path, schema], ...keysIn(schema, path)];
    }),
    ...[...anyOf, ...(items ? [items] : [])].flatMap((schema) => keysIn(schema, at)),
  ];
}

/** The schema that the definitions make, without descriptions. */
export function bareJsonSchema(): Record<string, unknown> {
  const { $schema, ...schema } = z.toJSONSchema(hostConfig, { io: 'input', target: 'draft-7' });
  return { $schema, title: 'hostler.json', ...schema };
}

export function hostConfigJsonSchema(): Record<string, unknown> {
  const schema = bareJsonSchema();
  for (const [path, key] of keysIn(schema)) {
    const description = descriptions.get(path);
    if (description !== undefined) key.description = description;
  }
  return schema;
}
