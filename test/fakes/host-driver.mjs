/**
 * A host in a separate process that kills itself when it emits the n-th event of a kind, so that no later step runs. Arguments:
 * configuration as JSON, state folder, kind, n.
 * Uses the built package, as an embedder would.
 */
import process from 'node:process';
import { createHost } from '../../dist/index.js';

const [config, stateDir, kind] = [JSON.parse(process.argv[2]), process.argv[3], process.argv[4]];
let left = Number(process.argv[5]);
const host = await createHost(config, { stateDir, onProblem: (error) => console.error(error) });
host.on(kind, () => {
  if (--left === 0) process.kill(process.pid, 'SIGKILL');
});
// The timers of a host do not keep the process alive.
setInterval(() => {}, 1_000);
