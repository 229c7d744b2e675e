/**
 * One entry of `keys`: what a key opens. The key itself is not in the configuration, only its hash.
 * Not here: making and comparing keys (gateway/keys.ts).
 */
import { z } from 'zod';

export const keyEntry = z.strictObject({
  hash: z
    .string('must be the hash of a key')
    .min(16, 'is too short for a hash')
    .max(512, 'is too long')
    .regex(/^[\x21-\x7e]*$/, 'must be one word'),
  role: z.string('must be the name of a role').min(1, 'must not be empty').max(256, 'is too long').optional(),
  expires: z
    .string('must be a date')
    .refine((text) => !Number.isNaN(Date.parse(text)), 'must be a date like 2027-01-31 or 2027-01-31T12:00:00Z')
    .optional(),
});

export type KeyEntry = Readonly<z.infer<typeof keyEntry>>;
