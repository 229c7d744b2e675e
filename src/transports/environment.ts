/**
 * Builds the environment of a child process: a baseline to find programs and home, the declared variables, the run marker.
 * Not here: expanding `${VAR}` (config/).
 * Invariant: no other variable reaches a child, because Hostler's own environment contains the keys of other servers.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';

export type Environment = Readonly<Record<string, string | undefined>>;

/** Null: the variable is not set, even if the baseline has it. */
export type DeclaredEnvironment = Readonly<Record<string, string | null | undefined>>;

/** Name of the variable that marks every process of one run (`<instance>.<run number>`), to identify leftover processes. */
export const RUN_MARKER = 'HOSTLER_RUN';

/** The state directory has a file `<instance><ending>` that lists the processes of the instance. */
export const JOURNAL_ENDING = '.children';

/** True for a process of an instance with this state directory. */
export function isChildOf(stateDir: string, env: Environment): boolean {
  const [, instance] = /^([\w-]+)\.\d+$/.exec(env[RUN_MARKER] ?? '') ?? [];
  return instance !== undefined && existsSync(path.join(stateDir, `${instance}${JOURNAL_ENDING}`));
}

/** Variables with the address of a proxy or registry, which may contain a password. Each also exists in lower case. */
const ADDRESSES = ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NPM_CONFIG_REGISTRY'];

/** docs/configuration.md lists them. */
export const BASELINE: ReadonlySet<string> = new Set([
  ...['PATH', 'HOME', 'USER', 'LANG', 'LC_ALL', 'TERM', 'SHELL', 'TMPDIR'],
  ...[...ADDRESSES, 'NO_PROXY'].flatMap((name) => [name, name.toLowerCase()]),
  ...['NODE_EXTRA_CA_CERTS', 'SSL_CERT_FILE'],
]);

/** Passwords, and user names without one, in addresses of proxies and registries. */
export function addressSecrets(env: Environment): string[] {
  return ADDRESSES.flatMap((name) => [env[name], env[name.toLowerCase()]]).flatMap((value) => {
    const [, user = '', password] = /^(?:[a-z][a-z0-9+.-]*:\/\/)?([^/?#:@]*)(?::([^/?#]*))?@/i.exec(value ?? '') ?? [];
    const secret = password ?? user;
    return secret === '' ? [] : [secret, decoded(secret)];
  });
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const runMark = (instanceId: string, run: number): string => `${instanceId}.${run}`;

export function childEnvironment(
  ambient: Environment,
  declared: DeclaredEnvironment,
  mark: string,
): Record<string, string> {
  const result = baselineEnvironment(ambient, declared);
  result[RUN_MARKER] = mark;
  return result;
}

export function baselineEnvironment(ambient: Environment, declared: DeclaredEnvironment): Record<string, string> {
  // No prototype: a variable may be named `__proto__`.
  const result: Record<string, string> = Object.create(null);
  for (const [name, value] of Object.entries(ambient)) {
    if (value !== undefined && inBaseline(name)) result[name] = value;
  }
  for (const [name, value] of Object.entries(declared)) {
    if (value === null) delete result[name];
    else if (value !== undefined) result[name] = value;
  }
  return result;
}

const inBaseline = (name: string): boolean => BASELINE.has(name) || name.startsWith('XDG_');
