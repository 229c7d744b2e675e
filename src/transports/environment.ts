/**
 * The environment of a child process: a short baseline to find programs and its home, the declared variables, and the run marker.
 * Hostler's other variables are not passed on, because they contain the keys of other servers.
 * Not here: expanding `${VAR}` (config/).
 * Invariant: a variable that is neither in the baseline nor declared never reaches a child.
 */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Marks every process of one run, so that leftovers can be identified: `<instance>.<run number>`. */
export const RUN_MARKER = 'HOSTLER_RUN';

const BASELINE = new Set(['PATH', 'HOME', 'USER', 'LANG', 'LC_ALL', 'TERM', 'SHELL', 'TMPDIR']);

/** The marker's value for one run. */
export const runMark = (instanceId: string, run: number): string => `${instanceId}.${run}`;

export function childEnvironment(ambient: Environment, declared: Environment, mark: string): Record<string, string> {
  // No prototype: a variable may be called anything, `__proto__` too.
  const result: Record<string, string> = Object.create(null);
  for (const [name, value] of Object.entries(ambient)) {
    if (value !== undefined && inBaseline(name)) result[name] = value;
  }
  for (const [name, value] of Object.entries(declared)) {
    if (value !== undefined) result[name] = value;
  }
  result[RUN_MARKER] = mark;
  return result;
}

const inBaseline = (name: string): boolean => BASELINE.has(name) || name.startsWith('XDG_');
