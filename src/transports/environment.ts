/**
 * Builds the environment of a child process: a baseline to find programs and home, the declared variables, the run marker.
 * Not here: expanding `${VAR}` (config/).
 * Invariant: no other variable reaches a child, because Hostler's own environment contains the keys of other servers.
 */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Null: the variable is not set, even if the baseline has it. */
export type DeclaredEnvironment = Readonly<Record<string, string | null | undefined>>;

/** Name of the variable that marks every process of one run (`<instance>.<run number>`), to identify leftover processes. */
export const RUN_MARKER = 'HOSTLER_RUN';

const BASELINE = new Set(['PATH', 'HOME', 'USER', 'LANG', 'LC_ALL', 'TERM', 'SHELL', 'TMPDIR']);

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
