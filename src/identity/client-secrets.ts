/**
 * The secrets of a configured client, which may be references: they are resolved for each request for a token, so a rotated secret is
 * used without an edit and without a restart.
 */
import type { AuthSettings } from '../config/auth-settings.js';
import type { SecretValues } from '../config/secrets/secret-values.js';

/** `isFresh`: runs commands even if their output is kept. Without `secrets` the texts are used as written. */
export async function withSecrets(
  server: string,
  auth: AuthSettings,
  secrets: Pick<SecretValues, 'resolve'> | undefined,
  isFresh = false,
): Promise<AuthSettings> {
  const { clientSecret, clientKey } = auth;
  if (!secrets) return auth;
  const resolve = (text: string, field: string) =>
    secrets.resolve(text, `mcpServers.${server}.auth.${field}`, { isFresh });
  return {
    ...auth,
    ...(clientSecret !== undefined && { clientSecret: await resolve(clientSecret, 'clientSecret') }),
    ...(clientKey && { clientKey: { ...clientKey, pem: await resolve(clientKey.pem, 'clientKey.pem') } }),
  };
}
