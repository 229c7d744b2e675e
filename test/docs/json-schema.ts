/**
 * The JSON Schema of `hostler.json`, for editors, made of the definitions that parse it.
 * Not here: rules beyond types, such as which servers a group may name (src/config/host-config.ts).
 */
import { z } from 'zod';
import { brokerEntry } from '../../src/config/broker-settings.js';
import { rateLimitEntry, roleEntry, telemetryEntry } from '../../src/config/host-config.js';
import { keyEntry } from '../../src/config/keys.js';
import { listenEntry, logEntry } from '../../src/config/listen-settings.js';
import { treatment } from '../../src/config/server-definition.js';
import { http, stdio } from '../../src/config/server-spec.js';

const server = z.union([
  z.strictObject({ ...stdio.omit({ name: true }).shape, ...treatment.shape }),
  z.strictObject({ ...http.omit({ name: true }).shape, ...treatment.shape }),
]);
const name = z.string();

const hostConfig = z.strictObject({
  $schema: z.string().optional(),
  mcpServers: z.record(name, server).optional(),
  roles: z.record(name, roleEntry.extend({ allow: z.array(z.string()) })).optional(),
  unlistedRole: z.enum(['deny', 'allow']).optional(),
  budgets: z
    .strictObject({
      principals: z.record(name, rateLimitEntry).optional(),
      roles: z.record(name, rateLimitEntry).optional(),
    })
    .optional(),
  groups: z.record(name, z.array(z.string())).optional(),
  keys: z.record(name, keyEntry).optional(),
  listen: listenEntry.optional(),
  log: logEntry.optional(),
  broker: brokerEntry.optional(),
  telemetry: telemetryEntry.optional(),
});

export const hostConfigSchemaKeys: readonly string[] = Object.keys(hostConfig.shape);

export function hostConfigJsonSchema(): Record<string, unknown> {
  const { $schema, ...schema } = z.toJSONSchema(hostConfig, { io: 'input', target: 'draft-7' });
  return { $schema, title: 'hostler.json', ...schema };
}
