/**
 * `hostler key nats`: prints the configuration of nats-server, and tells a running one to read it again.
 * Not here: the configuration itself (broker/nats/server-config.ts).
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import type { Keys } from '../../config/keys.js';
import { sleep, systemClock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import type { ParsedArgs } from '../command.js';
import { EXIT } from '../exit-codes.js';
import { printJson, printText } from '../output/print.js';
import { keyUsageError } from './key-usage.js';

const listenDefault = '127.0.0.1:4222';
const storeDirDefault = '/var/lib/nats';
const storeMiBDefault = 1_024;
const storeMiBMax = 1_048_576;
/** Wait for nats-server to reload. With 1,000 workers a reload takes less. */
const reloadMs = 1_000;

export async function printNatsConfig(args: ParsedArgs, keys: Keys): Promise<number> {
  const pid = pidOf(args.text('reload'));
  const { natsServerConfig } = await import('../../broker/nats/server-config.js');
  const now = systemClock.date().getTime();
  // nats-server cannot expire a key, so expired keys are left out.
  const valid = [...keys.values()].filter(({ expiresAtMs = Number.POSITIVE_INFINITY }) => now < expiresAtMs);
  const text = natsServerConfig({
    listen: args.text('listen') ?? listenDefault,
    storeDir: args.text('store-dir') ?? storeDirDefault,
    hosts: valid.flatMap(({ isHost, nkey }) => (isHost && nkey !== undefined ? [nkey] : [])),
    workers: valid.flatMap(({ worker, nkey }) =>
      worker && nkey !== undefined ? [{ worker: worker.name, epoch: worker.epoch, publicKey: nkey }] : [],
    ),
    tls: tlsOf(args),
    syncsAlways: args.has('sync'),
    monitor: args.text('monitor'),
    maxFileBytes: storeMiBOf(args.text('max-store')) * 1024 ** 2,
  }).trimEnd();
  const out = args.text('output');
  if (args.has('json')) printJson({ config: out === undefined ? text : null, output: out ?? null });
  else if (out === undefined) printText(text);
  if (out !== undefined) {
    // nats-server must never read half of the file.
    writeFileSync(`${out}.new`, `${text}\n`, { mode: 0o640 });
    renameSync(`${out}.new`, out);
  }
  if (pid !== undefined) await reload(pid);
  return EXIT.done;
}

function tlsOf(args: ParsedArgs) {
  const [certFile, keyFile] = [args.text('tls-cert'), args.text('tls-key')];
  if (certFile === undefined && keyFile === undefined) return undefined;
  if (certFile === undefined || keyFile === undefined) throw keyUsageError('--tls-cert and --tls-key belong together');
  return { certFile, keyFile };
}

function storeMiBOf(text: string | undefined): number {
  const size = text === undefined ? storeMiBDefault : /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
  if (size >= 1 && size <= storeMiBMax) return size;
  throw keyUsageError(`--max-store must be a number of MiB from 1 to ${storeMiBMax}`);
}

function pidOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (/^[1-9]\d{0,9}$/.test(text) && Number(text) > 1) return Number(text);
  throw keyUsageError('--reload must be the process id of nats-server', 'pgrep nats-server prints it');
}

async function reload(pid: number): Promise<void> {
  // SIGHUP ends most other programs.
  const name = programOf(pid);
  if (name !== undefined && !name.startsWith('nats-server')) throw notReloaded(pid, `is ${name}, not nats-server`);
  try {
    process.kill(pid, 'SIGHUP');
    // nats-server 2.9 carries the requests of an added account only after the next reload.
    await sleep(systemClock, reloadMs);
    process.kill(pid, 'SIGHUP');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw notReloaded(pid, code === 'ESRCH' ? 'does not exist' : `cannot be signalled (${code ?? 'unknown'})`);
  }
  process.stderr.write(`nats-server (pid ${pid}) was told to read its configuration again\n`);
}

/** Undefined where there is no /proc. */
function programOf(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    return undefined;
  }
}

const notReloaded = (pid: number, what: string): HostError =>
  new HostError('invalid_spec', `--reload: process ${pid} ${what}`, {
    field: '--reload',
    reason: 'config',
    hint: 'pgrep nats-server prints the process id',
  });
