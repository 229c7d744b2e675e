/** Creates the host of a configuration, with the secrets and the tokens of this user. Starts no server. */
import { Host } from '../../host/host.js';
import type { Redactor } from '../../kernel/redact.js';
import { version } from '../version.js';
import { createSecrets } from './create-secrets.js';
import { hiddenPaths, type Serving } from './serving-config.js';
import { upIdentity } from './up-identity.js';

interface HostParts {
  /** The configuration file. */
  readonly file: string;
  readonly dataDir: string;
  readonly settings: Serving;
  readonly capabilities: Readonly<Record<string, unknown>>;
  readonly redactor: Redactor;
  readonly onProblem: (error: unknown) => void;
}

/** Close the host before `identity`. */
export function createUpHost({ file, dataDir, settings, capabilities, redactor, onProblem }: HostParts) {
  const { identity, folder } = upIdentity(file, settings.identity, redactor, onProblem);
  const host = new Host({
    client: { name: 'hostler', version, capabilities },
    stateDir: dataDir,
    hiddenPaths: [...hiddenPaths(file, settings), ...(folder === undefined ? [] : [folder])],
    authProvider: (server) => identity.providerFor(server),
    ambient: process.env,
    redactor,
    secrets: createSecrets(process.env, redactor),
    onProblem,
  });
  return { host, identity };
}
