/**
 * What a child process sees of our environment: a short baseline it needs to find programs and its home, what its
 * configuration declares, and one marker. Everything else of ours stays with us: it is where other servers' keys are.
 * Not here: expanding `${VAR}` (config/) and judging declared values (policy).
 * Invariant: a variable that is neither in the baseline nor declared never reaches a child.
 */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Marks every process of one run, so that leftovers can be told from look-alikes: `<instance>.<run number>`. */
export const RUN_MARKER = 'HOSTLER_RUN';

const BASELINE = new Set(['PATH', 'HOME', 'USER', 'LANG', 'LC_ALL', 'TERM', 'SHELL', 'TMPDIR']);

/** Without these most Windows programs cannot even load their libraries. Compared in upper case, as Windows does. */
const WINDOWS_LOCATIONS = new Set([
  'ALLUSERSPROFILE',
  'APPDATA',
  'COMMONPROGRAMFILES',
  'COMMONPROGRAMFILES(X86)',
  'COMPUTERNAME',
  'COMSPEC',
  'HOMEDRIVE',
  'HOMEPATH',
  'LOCALAPPDATA',
  'NUMBER_OF_PROCESSORS',
  'OS',
  'PATHEXT',
  'PROCESSOR_ARCHITECTURE',
  'PROGRAMDATA',
  'PROGRAMFILES',
  'PROGRAMFILES(X86)',
  'PROGRAMW6432',
  'PUBLIC',
  'SYSTEMDRIVE',
  'SYSTEMROOT',
  'TEMP',
  'TMP',
  'USERNAME',
  'USERPROFILE',
  'WINDIR',
]);

/** The marker's value for one run. */
export const runMark = (instanceId: string, run: number): string => `${instanceId}.${run}`;

export function childEnvironment(
  ambient: Environment,
  declared: Environment,
  mark: string,
  platform: NodeJS.Platform = process.platform,
): Record<string, string> {
  const windows = platform === 'win32';
  // No prototype: a variable may be called anything, `__proto__` too.
  const result: Record<string, string> = Object.create(null);
  for (const [name, value] of Object.entries(ambient)) {
    if (value !== undefined && inBaseline(name, windows)) result[name] = value;
  }
  for (const [name, value] of Object.entries(declared)) {
    if (value === undefined) continue;
    // Windows would hand the child only one of `Path` and `PATH`, and not say which.
    if (windows) for (const known of Object.keys(result)) if (sameName(known, name)) delete result[known];
    result[name] = value;
  }
  result[RUN_MARKER] = mark;
  return result;
}

function inBaseline(name: string, windows: boolean): boolean {
  if (windows) return BASELINE.has(name.toUpperCase()) || WINDOWS_LOCATIONS.has(name.toUpperCase());
  return BASELINE.has(name) || name.startsWith('XDG_');
}

const sameName = (one: string, other: string) => one.toUpperCase() === other.toUpperCase();

/** Looks a variable up the way the platform does. */
export function lookUp(environment: Environment, name: string, platform: NodeJS.Platform): string | undefined {
  if (platform !== 'win32') return environment[name];
  for (const [known, value] of Object.entries(environment)) if (sameName(known, name)) return value;
  return undefined;
}
