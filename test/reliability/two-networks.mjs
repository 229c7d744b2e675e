/**
 * Two network namespaces joined by a virtual cable, for a driver in one of them and the processes that it starts in the other.
 * Kernel rules drop or reset packets between them, so that the ends notice a cut only by silence.
 */
import { execFile, execFileSync, spawn, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);
export const near = '10.9.0.1';
export const far = '10.9.0.2';

/**
 * Restarts this driver in a network namespace of its own, and ends with it. `env`: variables that the restarted driver needs from
 * its start.
 */
export function inOwnNetwork(makeEnv) {
  if (process.env.OWN_NETWORK) return;
  const env = { ...process.env, ...makeEnv(), OWN_NETWORK: '1' };
  const { status } = spawnSync('unshare', ['--net', process.execPath, ...process.argv.slice(1)], {
    env,
    stdio: 'inherit',
  });
  process.exit(status ?? 1);
}

/** Makes a certificate for the other end. */
export function certificate(folder) {
  const [cert, key] = [`${folder}/cert.pem`, `${folder}/key.pem`];
  execFileSync(
    'openssl',
    [
      ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'],
      ...['-subj', '/CN=broker', '-addext', `subjectAltName=IP:${far}`, '-keyout', key, '-out', cert],
    ],
    { stdio: 'ignore' },
  );
  return { cert, key };
}

/** Rules that drop outgoing or incoming packets, or answer them with a reset. */
const rules = {
  both: ['out drop', 'in drop'],
  out: ['out drop'],
  in: ['in drop'],
  reset: ['out meta l4proto tcp reject with tcp reset', 'in drop'],
};
export const waysOfCutting = Object.keys(rules);

export async function joinNetworks() {
  const holder = spawn('unshare', ['--net', 'sleep', 'infinity'], { stdio: 'ignore' });
  const ip = (...words) => execFileSync('ip', words);
  const there = (...words) => execFileSync('nsenter', ['-t', String(holder.pid), '-n', ...words]);
  const own = execFileSync('readlink', ['/proc/self/ns/net'], { encoding: 'utf8' });
  // The process has moved when its namespace differs from ours.
  const netOf = () => execFileSync('readlink', [`/proc/${holder.pid}/ns/net`], { encoding: 'utf8' });
  while (netOf() === own) await new Promise((resolve) => setTimeout(resolve, 10));
  ip('link', 'set', 'lo', 'up');
  ip('link', 'add', 'near0', 'type', 'veth', 'peer', 'name', 'far0');
  ip('link', 'set', 'far0', 'netns', String(holder.pid));
  ip('addr', 'add', `${near}/24`, 'dev', 'near0');
  ip('link', 'set', 'near0', 'up');
  there('ip', 'link', 'set', 'lo', 'up');
  there('ip', 'addr', 'add', `${far}/24`, 'dev', 'far0');
  there('ip', 'link', 'set', 'far0', 'up');
  execFileSync('nft', [
    'add table inet cut; add chain inet cut out { type filter hook output priority 0; };' +
      'add chain inet cut in { type filter hook input priority 0; }',
  ]);
  const wire = (rule) => {
    const [chain, ...what] = rule.split(' ');
    return `add rule inet cut ${chain} ${chain === 'in' ? 'iifname' : 'oifname'} near0 ${what.join(' ')}`;
  };
  return {
    /** Prefix of a command that runs in the other network. */
    there: ['nsenter', '-t', String(holder.pid), '-n'],
    cut: (way) => run('nft', [['flush table inet cut', ...rules[way].map(wire)].join('; ')]),
    heal: () => run('nft', ['flush table inet cut']),
    close: () => holder.kill('SIGKILL'),
  };
}
