/** Runs one child process to its end. It inherits the output of this process. */
import { spawn } from 'node:child_process';
import process from 'node:process';
import { root } from './bootstrap.mjs';

/**
 * Resolves to the exit code; a signal or a failed start is 1. A signal that ends this process ends the child too. With `stdio:
 * 'pipe'` the output is printed when the child ends, so that the output of concurrent commands is not mixed.
 */
export function run(command, args, options = {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'], ...options });
    const printed = [];
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk) => printed.push(chunk));
    const forward = (signal) => child.kill(signal);
    const finish = (code) => {
      process.off('SIGINT', forward);
      process.off('SIGTERM', forward);
      resolve(code);
    };
    process.on('SIGINT', forward);
    process.on('SIGTERM', forward);
    child.once('error', (error) => {
      console.error(error.message);
      finish(1);
    });
    child.once('close', (code) => {
      process.stdout.write(Buffer.concat(printed));
      finish(code ?? 1);
    });
  });
}
