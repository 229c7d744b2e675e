/**
 * The rules of the published package, as pure functions of package.json and package-lock.json.
 * Not here: reading the files (package.test.ts).
 */
export interface Manifest {
  readonly bin?: Readonly<Record<string, string>>;
  readonly exports?: unknown;
  readonly scripts?: Readonly<Record<string, string>>;
  readonly dependencies?: Readonly<Record<string, string>>;
}

interface LockedPackage {
  readonly dev?: boolean;
  readonly optional?: boolean;
  /** Systems on which the package can be installed; undefined means all. */
  readonly os?: readonly string[];
  readonly hasInstallScript?: boolean;
}

export interface Lockfile {
  readonly packages: Readonly<Record<string, LockedPackage>>;
}

const productionPackagesMax = 15;

// npm runs these scripts on the machine of a user who installs the package, from the registry or from git.
const lifecycle = ['preinstall', 'install', 'postinstall', 'preprepare', 'prepare', 'postprepare', 'prepublish'];

function leaves(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(leaves) : [];
}

/** Entry points that the build does not produce, given the source files it compiles. */
export function entryPointErrors(manifest: Manifest, sources: ReadonlySet<string>): string[] {
  return [...leaves(manifest.bin), ...leaves(manifest.exports)].flatMap((entry) => {
    const file = entry.replace(/^\.\//, '');
    if (file === 'package.json') return [];
    const source = file.replace(/^dist\//, 'src/').replace(/(\.d\.ts|\.c?js)$/, '.ts');
    return file.startsWith('dist/') && sources.has(source) ? [] : [`${entry}: the build makes no such file`];
  });
}

export function lifecycleErrors(manifest: Manifest): string[] {
  return lifecycle.filter((name) => manifest.scripts?.[name] !== undefined).map((name) => `script ${name}`);
}

export const productionPackages = (lockfile: Lockfile): string[] =>
  Object.entries(lockfile.packages)
    .filter(([name, entry]) => name !== '' && entry.dev !== true)
    .map(([name]) => name);

export function footprintErrors(lockfile: Lockfile): string[] {
  const names = productionPackages(lockfile);
  // A native package has one build per platform, and a machine installs only one of them.
  const isBuild = (name: string) =>
    lockfile.packages[name]?.optional === true && lockfile.packages[name]?.os !== undefined;
  const everywhere = names.filter((name) => !isBuild(name));
  const installed = everywhere.length + (everywhere.length < names.length ? 1 : 0);
  const many = installed > productionPackagesMax ? [`${installed} packages: ${everywhere.join(', ')}`] : [];
  const scripts = names.filter((name) => lockfile.packages[name]?.hasInstallScript === true);
  return [...many, ...scripts.map((name) => `${name} has an install script`)];
}
