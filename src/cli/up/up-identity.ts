/** The tokens of `hostler up`: the store of the user, and the note about a section that has no effect. */
import type { IdentitySettings } from '../../config/auth-settings.js';
import { invalidSpec } from '../../config/schema-issues.js';
import { Identity } from '../../identity/identity.js';
import { systemClock } from '../../kernel/clock.js';
import { systemRandom } from '../../kernel/random.js';
import type { Redactor } from '../../kernel/redact.js';
import { identityPlace, isOwnConfig } from '../config/identity-config.js';

interface UpIdentity {
  readonly identity: Identity;
  /** Folder that sandboxed servers must not see. */
  readonly folder: string | undefined;
}

export function upIdentity(
  file: string,
  section: IdentitySettings | undefined,
  redactor: Redactor,
  onProblem: (error: unknown) => void,
): UpIdentity {
  const { folder, key } = identityPlace(process.env);
  if (key !== undefined) redactor.know(key);
  if (section && !isOwnConfig(file, process.env))
    onProblem(
      invalidSpec(
        'identity',
        'has an effect only in your own configuration',
        'move it to ~/.config/hostler/hostler.json',
      ),
    );
  return {
    identity: new Identity({
      folder,
      key,
      clock: systemClock,
      random: systemRandom,
      redactor,
      env: process.env,
      onProblem,
    }),
    folder,
  };
}
