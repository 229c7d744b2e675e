/** Creates the resolver of references to secrets. Commands get the variables of the start, not those that clients add later. */
import { SecretValues } from '../../config/secrets/secret-values.js';
import { systemClock } from '../../kernel/clock.js';
import type { Redactor } from '../../kernel/redact.js';
import { baselineEnvironment } from '../../transports/environment.js';

export function createSecrets(env: NodeJS.ProcessEnv, redactor: Redactor): SecretValues {
  const atStart = { ...env };
  const environmentOf = (names: readonly string[]) =>
    baselineEnvironment(atStart, Object.fromEntries(names.map((name) => [name, atStart[name]])));
  return new SecretValues({ clock: systemClock, redactor, environmentOf });
}
