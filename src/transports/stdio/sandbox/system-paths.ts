/**
 * The parts of the operating system that every sandboxed server sees: programs, libraries, and settings for names, users,
 * certificates, time zones and packages. No other system file is visible.
 * Not here: the program of the server (program-paths.ts), declared paths (sandbox-view.ts).
 * Invariant: a setting that only its owner or group may read is not shown, even if root runs Hostler.
 */
import { lstat, readdir, readlink, realpath, stat } from 'node:fs/promises';
import path from 'node:path';

/** Folders shown completely: `/usr`, and the package stores of NixOS and Guix. */
const trees = ['/usr', '/nix/store', '/gnu/store'];

/** Links into /usr on most systems, folders on others. */
const programFolders = ['/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32'];

/** NixOS finds its programs through this link. */
const links = ['/run/current-system'];

/** Names in /etc, without passwords, keys, sudo rules and settings of services. */
const settings = [
  ...['alternatives', 'ld.so.cache', 'ld.so.conf', 'ld.so.conf.d', 'static'],
  ...['passwd', 'group', 'nsswitch.conf'],
  ...['hosts', 'host.conf', 'resolv.conf', 'gai.conf', 'networks', 'protocols', 'services'],
  ...['ssl/certs', 'ssl/cert.pem', 'ssl/openssl.cnf', 'ca-certificates', 'ca-certificates.conf', 'crypto-policies'],
  ...['pki/ca-trust', 'pki/tls/certs', 'pki/tls/cert.pem', 'pki/tls/openssl.cnf'],
  ...['localtime', 'timezone', 'locale.conf', 'locale.alias', 'default/locale'],
  ...['os-release', 'lsb-release', 'debian_version', 'mime.types', 'fonts', 'terminfo'],
  ...['npmrc', 'pip.conf', 'uv', 'gitconfig', 'perl'],
];

/** Settings with a version in their name, such as `python3.12` and `java-21-openjdk`. */
const versioned = /^(?:java|python3)[\w.-]*$/;

/** Returns trees to show, links to recreate, and settings with their path inside and their source. */
export async function systemPaths(isHidden: (real: string) => boolean) {
  const names = [...settings, ...(await namesIn('/etc')).filter((name) => versioned.test(name))];
  const [roots, folders, found] = await Promise.all([
    Promise.all(trees.map(present)),
    Promise.all([...programFolders, ...links].map(present)),
    Promise.all(names.map((name) => setting(path.join('/etc', name), isHidden))),
  ]);
  const all = [...roots, ...folders].flatMap((entry) => (entry === undefined ? [] : [entry]));
  return {
    trees: all.flatMap(({ at, to }) => (to === undefined ? [at] : [])),
    links: all.flatMap(({ at, to }) => (to === undefined ? [] : [{ at, to }])),
    settings: found.flatMap((entry) => (entry === undefined ? [] : [entry])),
  };
}

async function present(at: string): Promise<{ at: string; to: string | undefined } | undefined> {
  const facts = await lstat(at).catch(() => undefined);
  return facts && { at, to: facts.isSymbolicLink() ? await readlink(at) : undefined };
}

const othersMayRead = 0o004;

async function setting(at: string, isHidden: (real: string) => boolean) {
  try {
    // Links are resolved, because the target of resolv.conf is often in /run, which is private inside.
    const source = await realpath(at);
    const { mode } = await stat(source);
    return (mode & othersMayRead) === 0 || isHidden(source) ? undefined : { at, source };
  } catch {
    return undefined;
  }
}

const namesIn = (folder: string): Promise<string[]> => readdir(folder).catch(() => []);

/**
 * Entries of /proc through which a process could change the kernel without a capability. They are mounted read-only.
 * Root could otherwise change every sysctl, and `core_pattern` names a program that the kernel runs outside all sandboxes.
 */
export async function kernelControls(): Promise<string[]> {
  const names = (await namesIn('/proc')).filter((name) => !/^\d+$/.test(name));
  const entries = await Promise.all(
    names.map(async (name) => {
      const file = path.join('/proc', name);
      const facts = await lstat(file).catch(() => undefined);
      const isControl = facts?.isDirectory() || (facts?.isFile() && (facts.mode & 0o222) !== 0);
      return isControl ? [file] : [];
    }),
  );
  return entries.flat();
}
