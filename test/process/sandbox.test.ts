/**
 * E7: the paths that a server in `sandbox: "standard"` can see, write and connect to, as an allow list: the server reports
 * everything it finds from the root of its file system, and what is not listed here fails the test.
 */
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type Server } from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/kernel/clock.js';
import { ChildProcesses } from '../../src/transports/stdio/child-processes.js';
import { inheritedDescriptors } from '../../src/transports/stdio/inherited-descriptors.js';
import { openStdio } from '../../src/transports/stdio/stdio-channel.js';
import { fakes, Talk, until } from './harness.js';

interface Seen {
  readonly seen: readonly string[];
  readonly writable: readonly string[];
  readonly special: readonly string[];
  readonly controls: readonly string[];
  readonly processes: readonly string[];
  readonly descriptors: Readonly<Record<string, string>>;
  readonly reached: readonly string[];
  readonly read: readonly string[];
  readonly cwd: string;
  readonly environment: Readonly<Record<string, string>>;
}

const root = fileURLToPath(new URL('../..', import.meta.url));
/** Not below /tmp, which is private in every sandbox: a visible path must have been mounted. */
const scratch = process.env.TEST_SCRATCH ?? path.join(root, '.vitest');
let world: string;
let keeper: ChildProcesses;
const listeners: Server[] = [];
const abstractName = `hostler-sandbox-${process.pid}`;
let port: number;

const at = (...names: string[]): string => path.join(world, ...names);

function write(text: string, ...names: string[]): string {
  const file = at(...names);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text, { mode: text.startsWith('#!') ? 0o755 : 0o644 });
  return file;
}

const listen = async (where: string | number): Promise<Server> => {
  const server = createServer((socket) => socket.destroy());
  listeners.push(server);
  await new Promise<void>((resolve) =>
    typeof where === 'number' ? server.listen(where, '127.0.0.1', resolve) : server.listen(where, resolve),
  );
  return server;
};

beforeAll(async () => {
  mkdirSync(scratch, { recursive: true });
  world = mkdtempSync(path.join(scratch, 'sandbox-'));
  write('secret', 'home', '.ssh', 'id_ed25519');
  write('secret', 'home', '.config', 'hostler', 'hostler.json');
  write('#!/bin/sh\nexec perl "$@"\n', 'home', '.nvm', 'v1', 'bin', 'node');
  write('code', 'home', '.nvm', 'v1', 'lib', 'module');
  write('secret', 'home', '.nvm', 'credentials');
  write('{}', 'home', 'project', 'package.json');
  write(readFileSync(path.join(fakes, 'sandbox-probe.pl'), 'utf8'), 'home', 'project', 'src', 'server.pl');
  write('{"keys":"secret"}', 'home', 'project', 'hostler.json');
  write('secret', 'home', 'project', 'hostler.json.bak');
  write('secret', 'home', 'project', '.env');
  write('secret', 'data', 'key');
  write('secret', 'other-user', 'file');
  write('text', 'readable', 'file');
  write('text', 'writable', 'file');
  symlinkSync('readable', at('link'));
  await listen(at('data', 'control.sock'));
  await listen(`\0${abstractName}`);
  port = ((await listen(0)).address() as { port: number }).port;
  const ambient = {
    PATH: process.env.PATH,
    HOME: at('home'),
    USER: 'u',
    XDG_RUNTIME_DIR: '/run/user/1',
    TOKEN: 'secret',
  };
  const hiddenPaths = [at('home', 'project', 'hostler.json')];
  keeper = new ChildProcesses({ clock: systemClock, stateDir: at('data'), ambient, hiddenPaths });
});

afterAll(async () => {
  await keeper.closeAll();
  for (const server of listeners) server.close();
  rmSync(world, { recursive: true, force: true });
});

const opaqueSettings = (): string[] => settings.filter((file) => statSync(file).isDirectory());

/** Below /etc, as far as the machine has them. */
const settings = [
  ...[
    'alternatives',
    'ca-certificates',
    'ca-certificates.conf',
    'crypto-policies',
    'debian_version',
    'fonts',
    'gai.conf',
  ],
  ...['gitconfig', 'group', 'host.conf', 'hosts', 'ld.so.cache', 'ld.so.conf', 'ld.so.conf.d', 'locale.alias'],
  ...['locale.conf', 'localtime', 'lsb-release', 'mime.types', 'networks', 'npmrc', 'nsswitch.conf', 'os-release'],
  ...['passwd', 'perl', 'pip.conf', 'protocols', 'resolv.conf', 'services', 'static', 'terminfo', 'timezone', 'uv'],
  ...['default/locale', 'pki/ca-trust', 'pki/tls/cert.pem', 'pki/tls/certs', 'pki/tls/openssl.cnf'],
  ...['ssl/cert.pem', 'ssl/certs', 'ssl/openssl.cnf'],
  ...readdirSync('/etc').filter((name) => /^(?:java|python3)[\w.-]*$/.test(name)),
]
  .map((name) => path.join('/etc', name))
  .filter((file) => existsSync(file) && (statSync(file).mode & 0o004) !== 0);

const systemRoots = [
  '/usr',
  '/nix/store',
  '/gnu/store',
  '/bin',
  '/sbin',
  '/lib',
  '/lib32',
  '/lib64',
  '/libx32',
  '/run/current-system',
].filter((file) => existsSync(file));

const devices = [
  ...[
    'core',
    'fd',
    'full',
    'null',
    'ptmx',
    'pts',
    'pts/ptmx',
    'random',
    'shm',
    'stderr',
    'stdin',
    'stdout',
    'tty',
    'urandom',
    'zero',
  ],
].map((name) => `/dev/${name}`);

/** Including their parent folders. */
function withParents(files: readonly string[]): string[] {
  const all = new Set<string>(['/']);
  for (let file of files) for (; file !== '/'; file = path.dirname(file)) all.add(file);
  return [...all].sort();
}

async function probe(
  server: string,
  spec: { readablePaths?: string[]; writablePaths?: string[]; cwd?: string; env?: Record<string, string> },
): Promise<Seen> {
  const files = [
    at('home', '.ssh', 'id_ed25519'),
    at('data', 'key'),
    at('other-user', 'file'),
    at('home', 'project', 'hostler.json'),
    at('home', '.config', 'hostler', 'hostler.json'),
    at('link', 'file'),
    '/etc/shadow',
    '/etc/hosts',
  ];
  const ask = {
    opaque: ['/usr', '/nix/store', '/gnu/store', '/proc', ...systemRoots, ...opaqueSettings()],
    sockets: [at('data', 'control.sock'), `@${abstractName}`],
    ports: [port],
    files,
  };
  const { env, ...rest } = spec;
  const full = {
    ...{ server, command: at('home', '.nvm', 'v1', 'bin', 'node'), args: [at('home', 'project', 'src', 'server.pl')] },
    ...{ sandbox: 'standard' as const, env: { PROBE: JSON.stringify(ask), ...env }, ...rest },
  };
  const talk = new Talk(await openStdio(full, { clock: systemClock, cleanText: String, children: keeper }));
  await until(() => talk.messages.length > 0 || talk.closed.length > 0, 'the server has reported');
  expect(talk.closed.map(({ error }) => error.message)).toEqual([]);
  await talk.channel.close();
  return JSON.parse(talk.messages[0] as string) as Seen;
}

describe('E7 a server in the sandbox', () => {
  let seen: Seen;
  beforeAll(async () => {
    const paths = { readablePaths: [at('link')], writablePaths: [at('writable')] };
    seen = await probe('probe', { ...paths, env: { LD_LIBRARY_PATH: at('writable') } });
  });

  test('sees the system, its program, declared paths and its own folders, and nothing else', () => {
    const own = [
      ...['home/.nvm/v1/bin/node', 'home/.nvm/v1/lib/module'],
      ...['home/project/package.json', 'home/project/src/server.pl'],
      ...['link', 'readable/file', 'writable/file'],
    ].map((name) => at(name));
    // The folder that the test itself runs in: a server's working folder, empty unless it is declared.
    const cwd = process.cwd();
    const folders = ['/dev', '/proc', '/run', '/tmp', '/var/tmp', '/sandbox/home', cwd];
    expect([...seen.seen].sort()).toEqual(withParents([...systemRoots, ...devices, ...settings, ...folders, ...own]));
  });

  test('writes to its own folders and declared paths, and nowhere else', () => {
    const own = ['/dev', '/dev/shm', '/run', '/sandbox/home', '/tmp', '/var/tmp', at('writable')];
    // If the project is below /tmp, the folders on the path to mounted folders belong to the server's own, empty /tmp.
    const isLeading = (file: string) =>
      file.startsWith('/tmp/') && file !== at('writable') && [...seen.seen].some((each) => each.startsWith(`${file}/`));
    expect([...seen.writable].filter((file) => !isLeading(file)).sort()).toEqual(own.sort());
    expect(seen.controls).toEqual([]);
  });

  test('connects to the network, abstract sockets included, and to no socket of the file system', () => {
    expect(seen.reached).toEqual([`@${abstractName}`, 'tcp']);
    expect(seen.special).toEqual([]);
  });

  test('reads no file of Hostler, of its user or of others', () => {
    expect(seen.read).toEqual([at('link', 'file'), '/etc/hosts']);
  });

  test('sees its own processes and descriptors only', () => {
    expect(seen.processes).toEqual(['bwrap', 'perl']);
    const given = Object.fromEntries(inheritedDescriptors().map((descriptor) => [descriptor, '/dev/null']));
    expect(seen.descriptors).toEqual({ 0: 'socket:[]', 1: 'socket:[]', 2: 'socket:[]', ...given });
  });

  test('has an environment that names only visible folders', () => {
    expect(seen.cwd).toBe(process.cwd());
    expect(seen.environment).toEqual({
      PATH: process.env.PATH,
      HOME: '/sandbox/home',
      PWD: process.cwd(),
      USER: 'u',
      TMPDIR: '/tmp',
      XDG_CACHE_HOME: '/sandbox/home/.cache',
      XDG_CONFIG_HOME: '/sandbox/home/.config',
      XDG_DATA_HOME: '/sandbox/home/.local/share',
      XDG_STATE_HOME: '/sandbox/home/.local/state',
      LD_LIBRARY_PATH: at('writable'),
      HOSTLER_RUN: `${keeper.instanceId}.1`,
    });
  });
});

test('E7 a home is reused for its server, and not shared with another', async () => {
  const script =
    '$| = 1; my @had = map { s{.*/}{}r } glob("~/*"); open(my $f, ">", "$ENV{HOME}/$ENV{NAME}"); print qq({"jsonrpc":"2.0","method":"had","params":"@had"}\n); <STDIN>';
  const start = async (server: string, name: string): Promise<string | undefined> => {
    const spec = { server, command: 'perl', args: ['-e', script], env: { NAME: name }, sandbox: 'standard' as const };
    const talk = new Talk(await openStdio(spec, { clock: systemClock, cleanText: String, children: keeper }));
    await until(() => talk.messages.length > 0 || talk.closed.length > 0, 'the server has reported');
    await talk.channel.close();
    return talk.messages[0];
  };
  expect([
    await start('one', 'first'),
    await start('one', 'second'),
    await start('One', 'third'),
    await start('../one', 'fourth'),
  ]).toEqual(['""', '"first"', '""', '""']);
  expect(readdirSync(at('data', 'sandbox', 'one', 'home')).sort()).toEqual(['first', 'second']);
  expect(lstatSync(at('data', 'sandbox', 'one')).mode & 0o077).toBe(0);
});

test('E7 a server that changes the first line of its own script sees no other file after its next start', async () => {
  const secret = at('home', '.ssh', 'id_ed25519');
  const code =
    'my $seen = open(my $f, "<", $ENV{SECRET}) ? 1 : 0; print qq({"jsonrpc":"2.0","method":"seen","params":$seen}\\n); <STDIN>;';
  // env runs perl; after "-u" the path looks like the program.
  const line = `#!/usr/bin/env -S -u ../..${secret} perl`;
  const command = write(`${line}\n$| = 1; ${code}\n`, 'writable', 'server');
  const spec = { server: 'liar', command, env: { SECRET: secret, PATH: '/usr/bin' }, writablePaths: [at('writable')] };
  const deps = { clock: systemClock, cleanText: String, children: keeper };
  const talk = new Talk(await openStdio({ ...spec, sandbox: 'standard' }, deps));
  await until(() => talk.messages.length > 0 || talk.closed.length > 0, 'the server has reported');
  await talk.channel.close();
  rmSync(command);
  expect(talk.messages).toEqual(['0']);
});

/** Numbers of unshare, mount and umount2. */
const systemCalls = process.arch === 'arm64' ? '97, 40, 39' : '272, 165, 166';

test('E7 in its own namespace, with every capability in it, a server can unmount nothing and mount nothing', async () => {
  const hidden = at('home', '.config', 'hostler');
  const script = `
    $| = 1; my ($unshare, $mount, $umount) = (${systemCalls}); my $zero = 0;
    my ($top, $cover, $tmp, $proc, $sys) = ($ENV{TOP}, $ENV{COVER}, "/tmp", "proc", "/proc/sys");
    my $user_and_mounts = 0x10020000; my @done;
    push @done, "unshare" if syscall($unshare, $user_and_mounts) == 0;
    push @done, "umount" if syscall($umount, $cover, 2) == 0;
    push @done, "umount sys" if syscall($umount, $sys, 2) == 0;
    push @done, "bind" if syscall($mount, $top, $tmp, $tmp, 0x1000, $zero) == 0;
    push @done, "move" if syscall($mount, $cover, $tmp, $tmp, 0x2000, $zero) == 0;
    push @done, "remount" if syscall($mount, $top, $top, $tmp, 0x1020, $zero) == 0;
    push @done, "remount sys" if syscall($mount, $sys, $sys, $tmp, 0x1020, $zero) == 0;
    push @done, "proc" if syscall($mount, $proc, $tmp, $proc, 0, $zero) == 0;
    push @done, "read" if -e "$cover/hostler.json" || -e "$tmp/hostler/hostler.json";
    push @done, "write" if open(my $f, ">", "$top/new");
    print qq({"jsonrpc":"2.0","method":"done","params":"@done"}\\n); <STDIN>;`;
  const env = { TOP: path.dirname(hidden), COVER: hidden };
  const spec = { server: 'nested', command: 'perl', args: ['-e', script], env, readablePaths: [env.TOP] };
  const deps = { clock: systemClock, cleanText: String, children: keeper };
  const talk = new Talk(await openStdio({ ...spec, sandbox: 'standard' }, deps));
  await until(() => talk.messages.length > 0 || talk.closed.length > 0, 'the server has reported');
  await talk.channel.close();
  // If the system allows no user namespaces, the first step already fails.
  expect(['"unshare"', '""']).toContain(talk.messages[0]);
});

test('E7 a readable folder is shown without the files of Hostler in it', async () => {
  const { seen, read, reached } = await probe('reader', { readablePaths: [world], cwd: at('home', 'project') });
  expect(read).toEqual([at('home', '.ssh', 'id_ed25519'), at('other-user', 'file'), at('link', 'file'), '/etc/hosts']);
  expect(reached).toEqual([`@${abstractName}`, 'tcp']);
  for (const hidden of [at('data'), at('home', '.config', 'hostler')])
    expect(seen.filter((file) => file.startsWith(`${hidden}/`))).toEqual([]);
  expect(seen.filter((file) => file.includes('hostler.json'))).toEqual([]);
  expect(seen).toContain(at('home', 'project', '.env'));
});
