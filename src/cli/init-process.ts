/**
 * `hostler up` as PID 1 without a shell above it (`node .../main.cjs up` in a container): runs itself below a reaper.
 * Not here: the reapers (reaper-script.ts), what a stop signal does (stop-signals.ts).
 *
 * Invariant: without a reaper Hostler runs as PID 1 itself, and ChildKeeper reports once that orphans are not reaped.
 */
import { spawn } from 'node:child_process';
import { NO_REAPER, PERL_REAPER, REAPER_VARIABLE } from './reaper-script.js';

/** The system call number of prctl, which differs between architectures. */
const prctlNumbers: Readonly<Record<string, number>> = {
  ...{ x64: 157, arm64: 167, arm: 172, ia32: 172, ppc64: 171, s390x: 172, riscv64: 167, loong64: 167 },
};

/** The exit code of the Hostler below the reaper; undefined when the reaper could not run, and this process must be Hostler. */
export function runBelowReaper(): Promise<number | undefined> {
  const prctl = prctlNumbers[process.arch];
  if (process.platform !== 'linux' || prctl === undefined) return Promise.resolve(undefined);
  const command = [process.execPath, ...process.execArgv, ...process.argv.slice(1)];
  return new Promise((resolve) => {
    const child = spawn('perl', ['-e', PERL_REAPER, String(prctl), ...command], {
      stdio: 'inherit',
      env: { ...process.env, [REAPER_VARIABLE]: 'perl' },
    });
    const forwarded = [
      ...(['SIGTERM', 'SIGINT', 'SIGHUP'] as const).map((signal) => [signal, 'SIGUSR2'] as const),
      ...(['SIGQUIT', 'SIGUSR1'] as const).map((signal) => [signal, signal] as const),
    ].map(([signal, below]) => [signal, () => void child.kill(below)] as const);
    for (const [signal, forward] of forwarded) process.on(signal, forward);
    const ended = (code: number | undefined) => {
      for (const [signal, forward] of forwarded) process.off(signal, forward);
      resolve(code === NO_REAPER ? undefined : code);
    };
    // No Perl: nothing was started.
    child.once('error', () => ended(undefined));
    child.once('exit', (code) => ended(code ?? 1));
  });
}
