/**
 * The JSON Schema of `hostler.json`, for editors: made of the definitions that parse it, and of nothing else.
 * Not here: what is not said by types, such as which servers a group may name (host-config.ts).
 */
import { z } from 'zod';
import { brokerEntry } from './broker-settings.js';
import { ceilingEntry, roleEntry } from './host-config.js';
import { keyEntry } from './keys.js';
import { listenEntry, logEntry } from './listen-settings.js';
import { treatment } from './server-definition.js';
import { http, stdio } from './server-spec.js';

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
      principals: z.record(name, ceilingEntry).optional(),
      roles: z.record(name, ceilingEntry).optional(),
    })
    .optional(),
  groups: z.record(name, z.array(z.string())).optional(),
  keys: z.record(name, keyEntry).optional(),
  listen: listenEntry.optional(),
  log: logEntry.optional(),
  broker: brokerEntry.optional(),
  telemetry: z.strictObject({ traces: z.boolean().default(false) }).optional(),
});

export const hostConfigSchemaKeys: readonly string[] = Object.keys(hostConfig.shape);

export function hostConfigJsonSchema(): Record<string, unknown> {
  const { $schema, ...schema } = z.toJSONSchema(hostConfig, { io: 'input', target: 'draft-7' });
  return { $schema, title: 'hostler.json', ...schema };
}
