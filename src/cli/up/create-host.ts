/** Creates the host of a configuration, with the secrets and the tokens of this user. Starts no server. */
import { ownConfigFile } from '../../config/folders.js';
import { invalidSpec } from '../../config/invalid-spec.js';
import { Host } from '../../host/host.js';
import { Identity } from '../../identity/identity.js';
import { identityPlace } from '../../identity/identity-place.js';
import { systemClock } from '../../kernel/clock.js';
import { systemRandom } from '../../kernel/random.js';
import type { Redactor } from '../../kernel/redact.js';
import { realPath } from '../config/find-config.js';
import { version } from '../version.js';
import { createSecrets } from './create-secrets.js';
import { hiddenPaths, type Serving } from './serving-config.js';

interface HostParts {
  /** The configuration file. */
  readonly file: string;
  readonly dataDir: string;
  readonly settings: Serving;
  readonly capabilities: Readonly<Record<string, unknown>>;
  readonly redactor: Redactor;
  readonly onProblem: (error: unknown) => void;
}

/** The caller must close the host before `identity`. */
export function createUpHost({ file, dataDir, settings, capabilities, redactor, onProblem }: HostParts) {
  const { folder, key, error } = identityPlace(process.env);
  if (key !== undefined) redactor.know(key);
  const own = ownConfigFile(process.env);
  if (settings.identity && (own === undefined || realPath(own) !== realPath(file)))
    onProblem(
      invalidSpec(
        'identity',
        'has an effect only in your own configuration',
        'move it to ~/.config/hostler/hostler.json',
      ),
    );
  const secrets = createSecrets(process.env, redactor);
  const parts = { folder, key, error, secrets, redactor, onProblem, clock: systemClock, random: systemRandom };
  const identity = new Identity({ ...parts, env: process.env });
  const host = new Host({
    client: { name: 'hostler', version, capabilities },
    stateDir: dataDir,
    hiddenPaths: [...hiddenPaths(file, settings), ...(folder === undefined ? [] : [folder])],
    authProvider: (server) => identity.providerFor(server),
    ambient: process.env,
    redactor,
    secrets,
    onProblem,
  });
  return { host, identity };
}
