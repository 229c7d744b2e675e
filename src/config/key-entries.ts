/**
 * One entry of `keys`, for editors and documents: what a key opens. The key itself is not in the configuration, only its hash.
 * Not here: reading the entries (keys.ts), making and comparing keys (gateway/keys/keys.ts).
 */
import { z } from 'zod';

export const keyEntry = z.strictObject({
  hash: z
    .string()
    .regex(/^sha256:[A-Za-z0-9_-]{43,64}=?$/, 'must be sha256: and the SHA-256 of the key in hex or base64url'),
  role: z.string().min(1).max(128).optional(),
  expires: z.string().optional(),
});
